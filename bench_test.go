package holdfast_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

func newBenchLocker(b *testing.B, options ...holdfast.Option) *holdfast.Locker {
	b.Helper()
	backend := memhold.New()
	l, err := holdfast.New(backend, options...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.Close()
		backend.Close()
	})
	return l
}

// BenchmarkUncontended is what the kernel and memhold cost together for a TryAcquire and its
// Release.
func BenchmarkUncontended(b *testing.B) {
	l := newBenchLocker(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.TryAcquire(ctx, "invoice/42")
		if err != nil {
			b.Fatal(err)
		}
		lock.Release(ctx)
	}
}

// BenchmarkLocalHandoff is 32 goroutines that take turns on one key with nothing to do in it. It
// reports turns a second and Jain's fairness index over the goroutines' turns (1 is perfectly
// fair), beside a sync.Mutex used in the same way.
func BenchmarkLocalHandoff(b *testing.B) {
	const goroutines = 32
	ctx := context.Background()
	run := func(b *testing.B, turn func() error) {
		turns := make([]float64, goroutines)
		var total atomic.Int64
		var wait sync.WaitGroup
		b.ReportAllocs()
		b.ResetTimer()
		for i := range goroutines {
			wait.Go(func() {
				for total.Add(1) <= int64(b.N) {
					if err := turn(); err != nil {
						b.Error(err)
						return
					}
					turns[i]++
				}
			})
		}
		wait.Wait()
		b.StopTimer()
		var sum, squares float64
		for _, n := range turns {
			sum += n
			squares += n * n
		}
		b.ReportMetric(sum/b.Elapsed().Seconds(), "turns/s")
		b.ReportMetric(sum*sum/(goroutines*squares), "jain")
	}
	b.Run("holdfast", func(b *testing.B) {
		l := newBenchLocker(b)
		run(b, func() error {
			lock, err := l.Acquire(ctx, "invoice/42")
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		})
	})
	b.Run("mutex", func(b *testing.B) {
		var mu sync.Mutex
		turn := 0
		run(b, func() error {
			mu.Lock()
			turn++
			mu.Unlock()
			return nil
		})
	})
	b.Run("channel", func(b *testing.B) {
		tokens := make(chan struct{}, 1)
		run(b, func() error {
			tokens <- struct{}{}
			<-tokens
			return nil
		})
	})
}
