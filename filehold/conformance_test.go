//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/filehold"
)

func TestConformance(t *testing.T) {
	t.Parallel() // with the others that wait for processes and disks
	drivertest.Run(t, drivertest.Harness{
		Light: true, // others hold ten thousand keys
		NewStore: func(t testing.TB) drivertest.Store {
			dir := t.TempDir()
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return &faulty{Backend: open(t, dir)}
				},
				Lose:       func(t testing.TB, key string) { filehold.Lose(t, open(t, dir), key) },
				KillHolder: func(t testing.TB, key string) { killHolder(t, dir, key) },
				CutReply: func(t testing.TB, client driver.Backend) {
					client.(*faulty).cut.Store(true)
				},
				Freeze: func(t testing.TB, client driver.Backend) func() {
					f := client.(*faulty)
					f.frozen.Store(true)
					resume := filehold.Hang(f.Backend)
					return func() {
						f.frozen.Store(false)
						resume()
					}
				},
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Identify: true,
			Share: true, Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanKillHolder: true, CanCutReply: true, CanFreeze: true,
		},
	})
}

// faulty loses the answer to a call when it is told to. When frozen, it also hangs in calls that do
// not touch the directory and so would not hang by themselves: the suite expects that of all calls.
type faulty struct {
	*filehold.Backend
	cut, frozen atomic.Bool
}

func (f *faulty) lost(err error) error {
	if f.cut.Swap(false) {
		return &driver.Error{Maybe: true, Err: context.DeadlineExceeded}
	}
	return err
}

func (f *faulty) hang(ctx context.Context) {
	if f.frozen.Load() {
		<-ctx.Done()
	}
}

func (f *faulty) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := f.Backend.Acquire(ctx, claim)
	return r, f.lost(err)
}

func (f *faulty) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r, err := f.Backend.Renew(ctx, claims)
	return r, f.lost(err)
}

func (f *faulty) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := f.Backend.Release(ctx, claim)
	return r, f.lost(err)
}

func (f *faulty) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	f.hang(ctx)
	return f.Backend.List(ctx, prefix)
}

func (f *faulty) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	f.hang(ctx)
	return f.Backend.Inspect(ctx, key)
}

func (f *faulty) Identity(ctx context.Context) (string, error) {
	f.hang(ctx)
	return f.Backend.Identity(ctx)
}
