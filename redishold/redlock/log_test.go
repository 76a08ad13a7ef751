package redlock_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A node that is down or refuses is logged once, however often it is missed, and once when it is
// back. A claim that no server takes says nothing of them.
func TestNodesAreLogged(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var text lockedBuffer
	k := c.client(t, calm, redlock.WithLog(slog.New(slog.NewTextHandler(&text, nil))),
		redlock.WithLog(nil))
	k.healthy()
	c.servers[1].Kill()
	claim := newClaim("k", longTTL)
	k.hold(claim)
	count := func(level, words string) int {
		n := 0
		for line := range strings.Lines(text.String()) {
			if strings.Contains(line, "level="+level) && strings.Contains(line, words) &&
				strings.Contains(line, "node="+c.servers[1].Addr) {
				n++
			}
		}
		return n
	}
	testserver.Eventually(t, "it is told", func() error {
		k.renew(claim, driver.Held)
		return testserver.Not(count("WARN", "node is down") == 1, "%s", text.String())
	})
	for range 20 {
		k.renew(claim, driver.Held)
	}
	// What the first call saw is the reason: a connection that broke, or one that was refused.
	told, reason := count("WARN", "node is down"), "error=\""+c.servers[1].Addr+": "
	if told != 1 || !strings.Contains(text.String(), reason) {
		t.Errorf("told %d times, want once, with %s: %s", told, reason, text.String())
	}
	c.servers[1].Run(t)
	testserver.Eventually(t, "it is told that it is back", func() error {
		k.renew(claim, driver.Held)
		return testserver.Not(count("INFO", "node is back") == 1, "%s", text.String())
	})
	c.servers[1].Do(t, "ACL", "SETUSER", "default", "-set")
	for range 20 {
		other := newClaim("other", longTTL)
		k.hold(other)
		k.release(other, driver.Held)
		k.renew(claim, driver.Held) // that it does not refuse
	}
	testserver.Eventually(t, "it is told that it refuses", func() error {
		return testserver.Not(count("WARN", "node is refusing") == 1 &&
			strings.Contains(text.String(), "NOPERM"), "%s", text.String())
	})
	c.servers[1].Do(t, "ACL", "SETUSER", "default", "+set")
	testserver.Eventually(t, "it is told that it is back", func() error {
		other := newClaim("other", longTTL)
		k.hold(other)
		k.release(other, driver.Held)
		return testserver.Not(count("INFO", "node is back") == 2, "%s", text.String())
	})
	if _, err := k.ask(newClaim("holdfast:s", longTTL)); !errors.Is(err, driver.ErrInvalid) &&
		!driver.Permanent(err) {
		t.Errorf("a reserved key: %v", err)
	}
	k.release(claim, driver.Held)
	if lines := strings.Count(text.String(), "\n"); lines != 4 {
		t.Errorf("%d lines: %s", lines, text.String())
	}
	c.nothingLeft(t)
}
