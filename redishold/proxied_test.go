package redishold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// R32: a restart is seen through a proxy that passes on bytes, with TLS and without: such a proxy
// ends its connections when the server ends.
func TestR32_RestartBehindAProxy(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	for name, c := range map[string]struct {
		server []redistest.Option
		scheme string
		open   []redishold.Option
	}{
		"plain": {scheme: "redis://"},
		"TLS": {[]redistest.Option{redistest.WithTLS(certificates)}, "rediss://",
			[]redishold.Option{redishold.WithTLS(certificates.Client)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const guard = 10 * time.Minute // twice that is less than certificates last
			clock := redistest.NewClock(t)
			server := redistest.Start(t, append(c.server, redistest.WithClock(clock))...)
			proxy := redistest.NewProxy(t, server)
			remember(t, server, c.open...)
			clock.Step(t, 2*guard) // it has been up for so long
			b := open(t, c.scheme+proxy.Addr, c.open...)
			b.Guard(guard)
			claim := newClaim("k")
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
			server.Kill()
			server.Run(t)
			testserver.Eventually(t, "it is in quarantine", func() error {
				r, err := b.Acquire(t.Context(), newClaim("k"))
				if err == nil {
					t.Fatalf("granted after the restart, with the lease of another not over: %v",
						r.State)
				}
				q := (*driver.QuarantineError)(nil)
				return testserver.Not(errors.As(err, &q) && q.Remaining > guard/2, "%v", err)
			})
		})
	}
}
