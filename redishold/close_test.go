package redishold_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// Not parallel: it counts the goroutines of the process.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 2, 0)
	sentinels := redistest.StartSentinels(t)
	silent := pretend(t, func(string) string { return "" })
	before := runtime.NumGoroutine()
	for _, url := range []string{server.URL(), cluster.URL(), sentinels.URL()} {
		for range 3 {
			b := open(t, url)
			defer b.Notify(func(driver.Notice) {})()
			works(t, b)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// Closed while it connects to a server that never answers.
	for range 3 {
		b := open(t, "redis://"+silent, redishold.WithoutConnecting())
		if _, err := b.Acquire(brief(t), newClaim("k")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire from a silent server: %v", err)
		}
		b.Close()
	}
	testserver.Eventually(t, "all goroutines have ended", func() error {
		after := runtime.NumGoroutine()
		// the silent server has three of its own
		return testserver.Not(after <= before+3, "%d goroutines, %d before", after, before)
	})
}

func TestACLWithoutSubscribe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := []string{"ACL", "SETUSER", "locks"}
	for _, rule := range access(t) {
		if rule != "+subscribe" {
			rules = append(rules, rule)
		}
	}
	server.Do(t, rules...)
	b := open(t, "redis://locks:secret@"+server.Addr)
	first, second := newClaim("lock:k"), newClaim("lock:k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), first))
	mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), second))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), first))
	mustBe(t, "nobody is told, and the heartbeat finds it",
		driver.Held)(b.Acquire(t.Context(), second))
}

// What waits for a connection that is being made returns when the Backend is closed.
func TestCloseEndsConnecting(t *testing.T) {
	t.Parallel()
	silent := pretend(t, func(string) string { return "" })
	b := open(t, "redis://"+silent, redishold.WithoutConnecting())
	failed := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), newClaim("k"))
		failed <- err
	}()
	select {
	case err := <-failed:
		t.Fatalf("Acquire from a silent server: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	b.Close()
	if err := <-failed; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire when the Backend is closed: %v", err)
	}
}

// A request whose connection is closed just before it would be sent has surely done nothing, and
// says why the connection was closed.
func TestRequestOnAConnectionThatWasJustClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	reason := errors.New("the cable was cut")
	err := redishold.SendOnClosed(t.Context(), server.Addr, reason)
	if !errors.Is(err, reason) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("%v; want ErrUnavailable, as %v", err, reason)
	}
}
