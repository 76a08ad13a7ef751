package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

// fakeLibrary is a Library and its only Node. Requests wait for the gate of their lock's key, if there is one.
type fakeLibrary struct {
	cluster bool
	answer  func(protocol.Command) protocol.Reply

	mu    sync.Mutex
	gates map[string]chan struct{}
	sent  []string // names of scripts' keys, in the order in which requests began
}

func (l *fakeLibrary) Node(context.Context, uint16) (protocol.Node, error) { return l, nil }
func (l *fakeLibrary) Nodes(context.Context) ([]protocol.Node, error)      { return []protocol.Node{l}, nil }
func (l *fakeLibrary) Cluster() bool                                       { return l.cluster }
func (l *fakeLibrary) Reload()                                             {}
func (l *fakeLibrary) NotSent(error) bool                                  { return false }
func (l *fakeLibrary) Name() string                                        { return "" }
func (l *fakeLibrary) Sharded() bool                                       { return l.cluster }
func (l *fakeLibrary) Subscribe(context.Context, string, func(string)) (func(), error) {
	return func() {}, nil
}

func (l *fakeLibrary) Pipeline(_ context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	for i, command := range commands {
		if command[0] == "EVALSHA" {
			l.mu.Lock()
			l.sent = append(l.sent, scriptName(command[1])+" "+command[3])
			gate := l.gates[command[3]]
			l.mu.Unlock()
			if gate != nil {
				<-gate
			}
		}
		replies[i] = l.answer(command)
	}
	return nil
}

func (l *fakeLibrary) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.sent...)
}

func scriptName(sha string) string {
	for _, s := range protocol.Scripts() {
		if s.SHA == sha {
			return s.Name
		}
	}
	return sha
}

func one(protocol.Command) protocol.Reply { return protocol.Reply{Kind: protocol.Integer, Int: 1} }

func TestSharedKeepsTheOrderOfASlot(t *testing.T) {
	gate := make(chan struct{})
	l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
	b := protocol.New(protocol.Shared(l), protocol.Options{})
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := b.Acquire(brief(), claim()); !errors.Is(err, driver.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire: %v", err)
	}
	if _, err := b.Release(brief(), claim()); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("Release: %v", err)
	}
	// Another slot does not care.
	other := claim()
	other.Key = "other"
	if r, err := b.Release(t.Context(), other); err != nil || r.State != driver.Held {
		t.Fatalf("Release of another: %v, %v", r, err)
	}
	if got := fmt.Sprint(l.requests()); got != "[acquire k release other]" {
		t.Fatalf("while the acquisition hangs, these were sent: %s", got)
	}
	close(gate)
	// It comes behind the release that was given up.
	if r, err := b.Release(t.Context(), claim()); err != nil || r.State != driver.Held {
		t.Fatalf("Release: %v, %v", r, err)
	}
	if got := fmt.Sprint(l.requests()); got != "[acquire k release other release k release k]" {
		t.Fatalf("sent: %s", got)
	}
}

func TestSharedUndoesAGrantInQuarantine(t *testing.T) {
	l := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
		switch c[0] {
		case "INFO":
			return protocol.Reply{Kind: protocol.String, Str: "redis_version:7.0.0\r\nrun_id:x\r\nuptime_in_seconds:3\r\n"}
		case "CONFIG":
			return protocol.Reply{Kind: protocol.Failure, Str: "NOPERM"}
		}
		return one(c)
	}}
	b := protocol.New(protocol.Shared(l), protocol.Options{})
	b.Guard(time.Minute)
	var q *driver.QuarantineError
	if _, err := b.Acquire(t.Context(), claim()); !errors.As(err, &q) || q.Remaining > 58*time.Second || !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("Acquire: %v", err)
	}
	if got := fmt.Sprint(l.requests()); got != "[acquire k release k]" {
		t.Fatalf("sent: %s", got)
	}
	if _, err := b.Renew(t.Context(), []driver.Claim{claim()}); !errors.As(err, &q) {
		t.Fatalf("Renew: %v", err)
	}
	b.Guard(2 * time.Second)
	if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire after the quarantine: %v, %v", r, err)
	}
}

func TestSharedClosed(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
	b := protocol.New(protocol.Shared(l), protocol.Options{})
	failed := make(chan error)
	go func() {
		_, err := b.Acquire(t.Context(), claim())
		failed <- err
	}()
	redistest.Eventually(t, "the call is under way", func() error { return redistest.Not(len(l.requests()) > 0, "not yet") })
	b.Close()
	b.Close()
	if err := <-failed; !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("a call that hangs when the Backend is closed: %v", err)
	}
	if _, err := b.Release(t.Context(), claim()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release after Close: %v", err)
	}
}
