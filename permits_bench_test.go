package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// BenchmarkPermits is what a permit of 16 costs beside a lock: alone, and with 64 goroutines that
// share 16 permits or, four to a key, 16 keys.
func BenchmarkPermits(b *testing.B) {
	const permits, goroutines = 16, 64
	semaphore := []holdfast.AcquireOption{holdfast.WithPermits(permits)}
	own := make([]string, permits)
	for i := range own {
		own[i] = fmt.Sprintf("invoice/%d", i)
	}
	one := []string{"invoice/42"}
	for _, c := range []struct {
		name       string
		goroutines int
		keys       []string // the goroutines have them in turn
		options    []holdfast.AcquireOption
	}{
		{"one key", 1, one, nil},
		{"one permit", 1, one, semaphore},
		{"64 goroutines, 16 keys", goroutines, own, nil},
		{"64 goroutines, 16 permits", goroutines, one, semaphore},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := newBenchLocker(b)
			benchmarkTurns(b, c.goroutines, func(ctx context.Context, i int) error {
				lock, err := l.Acquire(ctx, c.keys[i%len(c.keys)], c.options...)
				if err != nil {
					return err
				}
				return lock.Release(ctx)
			})
		})
	}
}

// benchmarkTurns has goroutines take b.N turns in all, and reports turns a second.
func benchmarkTurns(b *testing.B, goroutines int,
	turn func(ctx context.Context, goroutine int) error) {
	ctx := context.Background()
	var total atomic.Int64
	var wait sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range goroutines {
		wait.Go(func() {
			for total.Add(1) <= int64(b.N) {
				if err := turn(ctx, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}
