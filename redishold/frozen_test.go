package redishold_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// Not parallel: it counts the goroutines of the process. Servers that hang for ever do not keep
// anybody from closing.
func TestCloseLeavesNoGoroutineWhenServersStandStill(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 2, 0)
	sentinels := redistest.StartSentinels(t)
	before := runtime.NumGoroutine()
	for _, url := range []string{server.URL(), cluster.URL(), sentinels.URL()} {
		b := open(t, url)
		defer b.Notify(func(driver.Notice) {})()
		holder, waiter := newClaim("k"), newClaim("k")
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), holder))
		mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), waiter))
		all := []*redistest.Server{server}
		all = append(append(all, cluster.Primaries...),
			append(sentinels.Sentinels, sentinels.Primary, sentinels.Replica)...)
		for _, s := range all {
			s.Freeze()
		}
		for _, ask := range []func() error{
			func() error { _, err := b.Acquire(brief(t), waiter); return err },
			func() error { _, err := b.Renew(brief(t), []driver.Claim{holder}); return err },
			func() error { _, err := b.Release(brief(t), holder); return err },
			func() error { _, err := b.Inspect(brief(t), "k"); return err },
		} {
			if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", url, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
		testserver.Eventually(t, "all goroutines have ended", func() error {
			after := runtime.NumGoroutine()
			return testserver.Not(after <= before, "%s: %d goroutines, %d before", url,
				after, before)
		})
		for _, s := range all {
			s.Thaw()
		}
	}
}
