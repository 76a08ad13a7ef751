//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"sync"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// message is what one member writes into the pipe of another. It is a hint: it may be lost, when the pipe is full or its reader
// dies, and then the waiter learns of it when it next asks. All messages have one size, below what every system writes to a pipe
// in one piece; so the claim is named by a hash.
type message struct {
	to    memberID
	kind  messageKind
	claim [sha256.Size]byte
	token uint64
	block uint64
}

type messageKind byte

const (
	// messageGranted: the claim holds its key now.
	messageGranted messageKind = 'g'

	// messageLook: whom the claim waits behind is not who it was.
	messageLook messageKind = 'l'
)

const (
	messageMagic = "hf1"
	messageSize  = len(messageMagic) + 1 + sha256.Size + 8 + 8 + 4
)

// claimHash names a claim in messages.
func claimHash(key, owner string) [sha256.Size]byte {
	return sha256.Sum256(append(appendString(nil, key), owner...))
}

func (m *message) append(b []byte) []byte {
	start := len(b)
	b = append(b, messageMagic...)
	b = append(b, byte(m.kind))
	b = append(b, m.claim[:]...)
	b = binary.LittleEndian.AppendUint64(b, m.token)
	b = binary.LittleEndian.AppendUint64(b, m.block)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// decodeMessage reads the message that b begins with, and returns the rest. A message that is not whole gives ok false and
// all of b; bytes that are none give ok false and no rest.
func decodeMessage(b []byte) (m message, rest []byte, ok bool) {
	if len(b) < messageSize {
		return m, b, false
	}
	frame, rest := b[:messageSize], b[messageSize:]
	body, sum := frame[:messageSize-4], frame[messageSize-4:]
	if string(body[:len(messageMagic)]) != messageMagic || binary.LittleEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return m, nil, false
	}
	body = body[len(messageMagic):]
	m.kind = messageKind(body[0])
	body = body[1+copy(m.claim[:], body[1:]):]
	m.token = binary.LittleEndian.Uint64(body)
	m.block = binary.LittleEndian.Uint64(body[8:])
	return m, rest, true
}

// send writes the message, or loses it.
func (d *directory) send(m *message) {
	// Without a reader this fails; it never blocks.
	fd, err := openFile(d.members+m.to.String()+wakeSuffix, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer closeFile(fd)
	var buf [messageSize]byte
	b := m.append(buf[:0])
	interruptible(func() error {
		_, err := syscall.Write(fd, b)
		return err
	})
}

// readMessages delivers what others write into our pipe, until it is closed.
func (c *core) readMessages() {
	// As much as a pipe holds, usually: messages are then not cut.
	buf := make([]byte, 0, 64<<10)
	for {
		n, err := c.member.wake.Read(buf[len(buf):cap(buf)])
		if n <= 0 || err != nil {
			return
		}
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			var m message
			var ok bool
			if m, rest, ok = decodeMessage(rest); !ok {
				break
			}
			c.receive(&m)
		}
		buf = buf[:copy(buf, rest)]
	}
}

func (c *core) receive(m *message) {
	w, ok := c.notices.find(m.claim)
	if !ok {
		return
	}
	switch m.kind {
	case messageGranted:
		c.notices.deliver(driver.Notice{Kind: driver.Granted, Key: w.key, Owner: w.owner, Token: driver.Token(m.token), Block: m.block})
	case messageLook:
		c.post(func(t *turn) { t.looks = append(t.looks, w.key) })
	}
}

// notices knows which claims may be granted by others, and who wants to be told.
type notices struct {
	mu        sync.Mutex
	expected  map[[sha256.Size]byte]claimName
	listeners map[*listener]struct{}
	stopped   bool
}

type claimName struct{ key, owner string }

// listener is a function given to Notify. Its address is its identity.
type listener struct{ f func(driver.Notice) }

func (n *notices) init() {
	n.expected = make(map[[sha256.Size]byte]claimName)
	n.listeners = make(map[*listener]struct{})
}

func (n *notices) expect(hash [sha256.Size]byte, name claimName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected[hash] = name
}

func (n *notices) forget(hash [sha256.Size]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.expected, hash)
}

func (n *notices) find(hash [sha256.Size]byte) (claimName, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.expected[hash]
	return name, ok
}

// deliver calls the listeners under the mutex, so that a call is never made after stop has returned.
func (n *notices) deliver(notice driver.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.listeners {
		l.f(notice)
	}
}

func (n *notices) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
	clear(n.listeners)
}

func (c *core) notify(f func(driver.Notice)) (stop func()) {
	n := &c.notices
	l := &listener{f}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		n.listeners[l] = struct{}{}
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, l)
	}
}
