package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// closing is a backend that closes its Locker, as a wrapper does that sees a fatal error.
type closing struct {
	*memhold.Backend
	l *holdfast.Locker

	calls bool
	told  error // what Close returned
}

func (c *closing) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if c.calls {
		if c.told = c.l.Close(); c.told != nil {
			return driver.Result{}, c.told
		}
	}
	return c.Backend.Acquire(ctx, claim)
}

// Close returns even if a request to the backend does not, because it calls Close itself. Close
// also reports keys that were left before.
func TestCloseFromTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closing{Backend: memhold.New()}
		defer c.Backend.Close()
		l, err := holdfast.New(c)
		if err != nil {
			t.Fatal(err)
		}
		c.l = l
		refusal := &driver.Error{Permanent: true, Err: errors.New("READONLY")}
		c.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
		left, err := l.TryAcquire(background, "left")
		if err != nil {
			t.Fatal(err)
		}
		left.Release(background)
		synctest.Wait()
		c.calls = true
		start := time.Now()
		if _, err = l.Acquire(background, "key"); err == nil {
			t.Error("acquired from a Locker that was closed")
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Close returned after %v, want 6s at most", took)
		}
		mustBe(t, c.told, holdfast.ErrUnknown, refusal)
	})
}
