package goredishold_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// warm has the server know the scripts, or a late request would do nothing.
func warm(t *testing.T, b *goredishold.Backend) {
	t.Helper()
	other := claim("other")
	if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire: %v, %v", r.State, err)
	}
	for _, yield := range []bool{false, true} {
		other.Yield = yield
		if results, err := b.Renew(t.Context(), []driver.Claim{other}); err != nil ||
			results[0].State != driver.Held {
			t.Fatalf("Renew: %+v, %v", results, err)
		}
	}
	if r, err := b.Release(t.Context(), other); err != nil || r.State != driver.Held {
		t.Fatalf("Release: %v, %v", r.State, err)
	}
}

// The library repeats a request of others whose answer is lost. Of one that is sent twice, the
// first may arrive after the second was answered.
func TestRequestsAreSentOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	b := open(t, client)
	warm(t, b)
	held := claim("k")
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{
		{"Acquire", func(ctx context.Context) error { _, err := b.Acquire(ctx, held); return err }},
		{"Renew", func(ctx context.Context) error {
			_, err := b.Renew(ctx, []driver.Claim{held})
			return err
		}},
		{"Release", func(ctx context.Context) error { _, err := b.Release(ctx, held); return err }},
	} {
		before := calls(server.String(t, "INFO", "commandstats"), "evalsha")
		testserver.Eventually(t, "there is a connection", func() error {
			return client.Ping(t.Context()).Err()
		})
		proxy.SetReplies(redistest.CutOnce)
		if err := c.call(t.Context()); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%s whose answer is lost: %v", c.name, err)
		}
		after := calls(server.String(t, "INFO", "commandstats"), "evalsha")
		if sent := count(after) - count(before); sent != 1 {
			t.Errorf("%s was sent %d times", c.name, sent)
		}
	}
}

// count reads how often a command was called from its line of INFO commandstats.
func count(line string) (n int) {
	_, rest, _ := strings.Cut(line, "calls=")
	for _, digit := range rest {
		if digit < '0' || digit > '9' {
			break
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// A request to yield that arrives after its holder was told to go on would let another holder in
// beside it.
func TestNoLateRequestHandsOverWhatIsHeld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, redis.NewClient(&redis.Options{Addr: proxy.Addr}))
	others := open(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	warm(t, b)
	holder, waiter := claim("k"), claim("k")
	if r, err := b.Acquire(t.Context(), holder); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire: %v, %v", r.State, err)
	}
	deliver := proxy.Strand()
	type answer struct {
		results []driver.Result
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		turn := holder
		turn.Yield, turn.Block = true, 1
		results, err := b.Renew(t.Context(), []driver.Claim{turn})
		answers <- answer{results, err}
	}()
	testserver.Eventually(t, "the request is on its way", func() error {
		return testserver.Not(proxy.Kept() > 0, "not yet")
	})
	proxy.BreakClients()
	a := <-answers
	if r, err := others.Acquire(t.Context(), waiter); err != nil || r.State != driver.Busy ||
		r.Place != 1 {
		t.Fatalf("Acquire of a waiter: %+v, %v", r, err)
	}
	deliver()
	server.Do(t, "PING")
	told := a.err == nil && a.results[0].State == driver.Held
	if now := server.String(t, "GET", "k"); told && now != holder.Owner {
		t.Errorf("the holder was told that it holds the key, which is %q's now: two hold it", now)
	}
	if !told && (a.err == nil || !errors.Is(a.err, driver.ErrUnknown)) {
		t.Errorf("Renew whose connection broke: %+v, %v", a.results, a.err)
	}
}
