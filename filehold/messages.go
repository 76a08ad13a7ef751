//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"bufio"
	"errors"
	"syscall"
)

// A message is one line that a member writes into the pipe of another: the name of a key's file.
// The reader looks at that key, because it holds the key now, or its waiter waits behind another
// member than before. A message is a hint. It is lost if the pipe is full or the reader dies. Then
// the waiter learns the news when it next asks.

// send writes the message, or loses it.
func (d *directory) send(to memberID, name string) {
	// The open fails without a reader, and never blocks.
	fd, err := openFile(d.members+to.String(), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer closeFile(fd)
	interruptible(func() error {
		// The first line feed ends any garbage that somebody else has written.
		_, err := sysWrite(fd, []byte("\n"+name+"\n"))
		return err
	})
}

// receive calls look with the name in each message, until the pipe is closed.
func (m *member) receive(look func(name string)) {
	lines := bufio.NewReader(m.wake)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // no message fills the buffer
			return
		}
		if name := string(line[:max(len(line)-1, 0)]); isKeyName(name) {
			look(name)
		}
	}
}
