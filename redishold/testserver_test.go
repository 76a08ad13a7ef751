package redishold_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// A server's clock goes where it is set, and takes leases along.
func TestClock(t *testing.T) {
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock))
	lead := func() time.Duration {
		reply := server.Do(t, "TIME").([]any)
		seconds, err := strconv.ParseInt(reply[0].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(seconds, 0)).Round(time.Minute)
	}
	server.Do(t, "SET", "k", "v", "PX", "1800000")
	for _, step := range []struct{ by, lead, rest time.Duration }{
		{0, 0, 30 * time.Minute},
		{20 * time.Minute, 20 * time.Minute, 10 * time.Minute},
		{-time.Hour, -40 * time.Minute, 70 * time.Minute},
		{100 * time.Minute, time.Hour, 0},
	} {
		clock.Step(t, step.by)
		testserver.Eventually(t, "the server's clock is stepped", func() error {
			got := lead()
			return testserver.Not(got == step.lead, "after a step of %v it is ahead by %v; want %v",
				step.by, got, step.lead)
		})
		rest := time.Duration(server.Int(t, "PTTL", "k")) * time.Millisecond
		if got := max(rest, 0).Round(time.Minute); got != step.rest {
			t.Errorf("after a step of %v the lease runs for %v; want %v", step.by, got, step.rest)
		}
	}
}

// A clock that stands still ends no lease, and servers still tell who came first.
func TestClockThatStandsStill(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	clock.Stop(t)
	server := redistest.Start(t, redistest.WithClock(clock))
	reading := func() string { return fmt.Sprint(server.Do(t, "TIME")) }
	server.Do(t, "SET", "k", "v", "PX", "100")
	first := reading()
	elapse(t, 100*time.Millisecond)
	if rest := server.Int(t, "PTTL", "k"); rest < 50 {
		t.Errorf("a lease of 100 ms ends in %d ms", rest)
	}
	if second := reading(); second == first {
		t.Errorf("two readings show %s", first)
	}
	clock.Step(t, time.Second)
	testserver.Eventually(t, "the lease ends when the clock is set", func() error {
		return testserver.Not(server.Int(t, "EXISTS", "k") == 0, "it goes on")
	})
}

// The reply to a PING, which a library sends by itself over a connection that is idle, is not the
// one that a test wants to lose.
func TestProxyCutsNoPong(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	proxy.SetReplies(redistest.CutOnce)
	client, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Try("PING"); err != nil {
		t.Errorf("PING: %v", err)
	}
	if _, err := client.Try("GET", "k"); err == nil {
		t.Error("the reply to GET was not lost")
	}
}
