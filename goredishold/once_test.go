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

// warm makes the server know the scripts. Otherwise a late request would do nothing.
func warm(t *testing.T, b *goredishold.Backend) {
	t.Helper()
	other := claim("other")
	if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire: %v, %v", r.State, err)
	}
	for _, block := range []uint64{0, 1} {
		other.Block = block
		if results, err := b.Renew(t.Context(), []driver.Claim{other}); err != nil ||
			results[0].State != driver.Held {
			t.Fatalf("Renew: %+v, %v", results, err)
		}
	}
	if r, err := b.Release(t.Context(), other); err != nil || r.State != driver.Held {
		t.Fatalf("Release: %v, %v", r.State, err)
	}
}

// The library repeats requests of other code if their answers are lost. If a request is sent twice,
// the first may arrive after the second was answered.
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
