package goredishold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// A connection may take longer than a call is given: there is a handshake, and the machine is busy.
// It is still made when its caller is gone. The next calls wait for it and make no others. They
// send nothing for callers who are gone by then.
func TestConnectionThatTakesLongerThanACall(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certificates))
	proxy := redistest.NewProxy(t, server)
	proxy.SetReplies(redistest.Hold)
	b := open(t,
		redis.NewClient(&redis.Options{Addr: proxy.Addr, TLSConfig: certificates.Client,
			DialTimeout: patience, ReadTimeout: patience}))
	var sent []driver.Claim
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		c := claim("k")
		_, err := b.Acquire(ctx, c)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire while the handshake goes on: %v", err)
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			sent = append(sent, c)
		}
	}
	if len(sent) > 1 {
		t.Errorf("%d acquisitions may have been sent; only the first can", len(sent))
	}
	proxy.SetReplies(redistest.Pass)
	for _, c := range sent {
		testserver.Eventually(t, "what was sent for nobody is released", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.Release(ctx, c)
			return err
		})
	}
	if r, err := b.Acquire(t.Context(), claim("k")); err != nil || r.State != driver.Held {
		t.Errorf("Acquire: %v, %v", r.State, err)
	}
	// One for requests, one for notices, and more only if those took very long.
	if made := proxy.Made(); made > 6 {
		t.Errorf("%d connections were made", made)
	}
}

// A request is lost on its way, and the client waits for ever for answers (ReadTimeout -1). Others
// for the same lock wait for its answer, but not for ever.
func TestAnswerThatNeverComes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, timeout := range map[string]time.Duration{"no timeout": -1, "no deadlines": -2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server)
			b := open(t, redis.NewClient(&redis.Options{Addr: proxy.Addr, ReadTimeout: timeout,
				WriteTimeout: timeout}))
			// It has a connection, whose requests are lost from now on.
			first := claim(name)
			if r, err := b.Acquire(t.Context(), first); err != nil || r.State != driver.Held {
				t.Fatalf("Acquire: %v, %v", r.State, err)
			}
			proxy.Strand()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			if _, err := b.Release(ctx, first); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("a release that is lost: %v", err)
			}
			testserver.Eventually(t, "the next request for the lock is answered", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := b.Release(ctx, first)
				return err
			})
		})
	}
}
