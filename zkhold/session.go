package zkhold

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// session is what is known of the session that the connection has now. The claims of the Backend
// live as long as the session.
//
// A server counts a session from the last request that it had from the client. Only the leader ends
// sessions. It hears of requests to the other servers with their next heartbeat, half a tick later.
// So an answer proves that the session lives on for three quarters of its timeout, under two
// conditions. The leader must have had a part in that answer, and in others before it without a
// gap. And a majority must have had a part in it: the leader of a minority that was replaced
// already does not know that for some ticks, and goes on answering sync.
type session struct {
	mu      sync.Mutex
	id      int64         // 0: none
	timeout time.Duration // as the server has granted it
	since   time.Duration // when the first request was sent of those answered without a gap
	last    time.Duration // when the last of them was sent
	until   time.Duration // the session lives at least until then
	known   chan struct{} // closed when there is a first session
	trouble error         // how the last attempt at a connection, or the last connection, failed

	unsure map[string]int // how many calls for a key wait until it is sure to live for long enough

	distrust chan error // has the first failure to trust each other; its room is one
}

// share is the part of a session's timeout that a claim may count on.
func share(timeout time.Duration) time.Duration { return timeout / 4 * 3 }

// gap is the longest time between requests without a gap.
func gap(timeout time.Duration) time.Duration { return timeout / 12 }

// granted notes what a server has said of the session, over a connection that was begun at that
// time. The leader has heard of the session since then.
func (s *session) granted(id int64, timeout, begun time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.id {
		s.until = begun
	}
	s.id = id
	if id == 0 { // the former one has expired
		return
	}
	s.timeout, s.since, s.last = timeout, begun-timeout/4, begun
	select {
	case <-s.known:
	default:
		close(s.known)
	}
}

// answered notes that the leader has had a part in an answer to that session, and a majority too if
// it was to a transaction.
func (s *session) answered(id int64, sent time.Duration, transaction bool) {
	now := driver.LeaseClock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || id != s.id {
		return
	}
	if now-s.last > gap(s.timeout) {
		s.since = sent
	}
	s.last = max(s.last, sent)
	if transaction && sent-s.since >= s.timeout/4 {
		s.until = max(s.until, sent+share(s.timeout))
	}
}

// failed notes why there is no connection to that server.
func (s *session) failed(address string, err error) {
	err = fmt.Errorf("%s: %w", address, err)
	s.mu.Lock()
	s.trouble = err
	s.mu.Unlock()
	if !distrusts(err) {
		return
	}
	select {
	case s.distrust <- err:
	default:
	}
}

// unanswered is the error of a call that has waited for a server in vain, until its context ended.
func (s *session) unanswered(ended error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil {
		return cutOff(false, fmt.Errorf("no server has answered: %w", ended))
	}
	return cutOff(false, fmt.Errorf("no server has answered: %w: %w", ended, s.trouble))
}

// cutOff is the error of a call for these keys whose context has ended. If a call for one of them
// waits until the session is sure to last, this one or one before it, the error says that this is
// missing. It does not if the servers are silent again: then they are what is missing. While a call
// waits, they answer twice in half a gap.
func (s *session) cutOff(begun bool, ended error, keys ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := slices.ContainsFunc(keys, func(key string) bool { return s.unsure[key] > 0 })
	if waits && driver.LeaseClock()-s.last <= gap(s.timeout)/2 {
		ended = fmt.Errorf("%w: %w", errUnsure, ended)
	}
	return cutOff(begun, ended)
}

// wait notes that n more calls for these keys wait until the session is sure to last.
func (s *session) wait(n int, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.unsure[key] += n; s.unsure[key] == 0 {
			delete(s.unsure, key)
		}
	}
}

// current returns the session and its timeout.
func (s *session) current() (id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.timeout
}

// lasts reports whether the session is still the same, and whether it is sure to live until then.
func (s *session) lasts(id int64, until time.Duration) (same, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same = id != 0 && id == s.id
	return same, same && s.until >= until
}

// names names the nodes of one session of a Backend. If the session ends just then, a node may be
// made in the next session. So its name also says which Backend has made it.
type names struct {
	backend *Backend
	id      int64
}

func (n names) prefix() string {
	return fmt.Sprintf("%s-%016x-", n.backend.instance, uint64(n.id))
}

func (n names) ours(node string) bool { return strings.HasPrefix(node, n.prefix()) }

func (n names) made(node string) bool {
	return strings.HasPrefix(node, n.backend.instance+"-")
}

func (n names) next() string { return fmt.Sprintf("%s%x", n.prefix(), n.backend.nodes.Add(1)) }

// names returns the names for the session that there is now.
func (b *Backend) names() names {
	id, _ := b.session.current()
	return names{b, id}
}

// link is a connection to a server. It reads what the client does not tell: which session the
// server has granted, and for how long.
type link struct {
	net.Conn
	session *session
	begun   time.Duration
	greet   time.Time // until when the server may give its first answer
	head    []byte    // of the first answer
}

// greeting is the length of what a server says first: a length, a version, the timeout of the
// session in milliseconds, and its id.
const greeting = 4 + 4 + 4 + 8

// SetReadDeadline bounds the wait for the first answer. A server that was about to serve may never
// answer a client that came a moment too early, and the client would wait for seven times the
// session's timeout.
func (l *link) SetReadDeadline(at time.Time) error {
	if len(l.head) < greeting && (at.IsZero() || at.After(l.greet)) {
		at = l.greet
	}
	return l.Conn.SetReadDeadline(at)
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.session.failed(l.RemoteAddr().String(), err) // a certificate may be refused that late
	}
	if room := greeting - len(l.head); room > 0 && n > 0 {
		l.head = append(l.head, p[:min(n, room)]...)
		if len(l.head) == greeting {
			timeout := time.Duration(binary.BigEndian.Uint32(l.head[8:])) * time.Millisecond
			l.session.granted(int64(binary.BigEndian.Uint64(l.head[12:])), timeout, l.begun)
		}
	}
	return n, err
}

// greetingTime is how long a server may take for its first answer: a third of the session's
// timeout, but at least a second. Within a second a majority agrees to a session even on a busy
// machine.
func greetingTime(timeout time.Duration) time.Duration {
	return max(time.Second, min(timeout/3, DefaultTimeout))
}

// dial makes a connection for the client.
func (b *Backend) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	begun := driver.LeaseClock()
	conn, err := b.dialer(network, address, timeout)
	if err != nil {
		b.session.failed(address, err)
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		conn.Close()
		return nil, errClosed
	}
	b.conn = &link{Conn: conn, session: &b.session, begun: begun,
		greet: time.Now().Add(greetingTime(b.wanted))}
	return b.conn, nil
}

// keep asks the leader again and again. For as long as the leader answers, the session lives.
func (b *Backend) keep() {
	for {
		b.sync(b.root)
		_, timeout := b.session.current()
		pause := time.NewTimer(max(gap(timeout)/2, 10*time.Millisecond))
		select {
		case <-b.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// sync makes later reads see at least what any answer before it was based on, whoever had that
// answer.
func (b *Backend) sync(path string) error {
	id, _ := b.session.current()
	sent := driver.LeaseClock()
	if _, err := b.client.Sync(path); err != nil {
		return err
	}
	b.session.answered(id, sent, false)
	return nil
}

// prove has a majority agree to a transaction of this session that changes nothing.
func (b *Backend) prove() error {
	id, _ := b.session.current()
	sent := driver.LeaseClock()
	if _, err := b.client.Set(b.slotsPath(), nil, -1); err != nil {
		return err
	}
	b.session.answered(id, sent, true)
	return nil
}

// outlast waits until it is sure that the session lives until then, for a call for these keys. The
// caller has had an answer from the session. outlast fails if there is another session by now, or
// at the deadline.
func (b *Backend) outlast(id int64, until, deadline time.Duration, keys ...string) error {
	waits := false
	for {
		same, sure := b.session.lasts(id, until)
		switch {
		case sure:
			return nil
		case !same:
			return errSession
		case driver.LeaseClock() >= deadline:
			return errUnsure
		}
		if err := b.prove(); err != nil {
			return err
		}
		if _, sure := b.session.lasts(id, until); sure {
			return nil
		}
		if !waits {
			waits = true
			b.session.wait(1, keys)
			defer b.session.wait(-1, keys)
		}
		_, timeout := b.session.current()
		pause := time.NewTimer(max(gap(timeout)/4, time.Millisecond))
		select {
		case <-b.ctx.Done():
			pause.Stop()
			return errClosed
		case <-pause.C:
		}
	}
}
