package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

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

// BenchmarkUncontended is what the kernel and memhold cost together for a TryAcquire and its Release.
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

// BenchmarkLocalHandoff is 32 goroutines that take turns on one key with nothing to do in it. It reports turns a second and
// Jain's fairness index over the goroutines' turns (1 is perfectly fair), beside a sync.Mutex used in the same way.
func BenchmarkLocalHandoff(b *testing.B) {
	const goroutines = 32
	ctx := context.Background()
	run := func(b *testing.B, turn func() error) {
		turns := make([]float64, goroutines)
		var wait sync.WaitGroup
		stop := make(chan struct{})
		b.ReportAllocs()
		b.ResetTimer()
		var left = make(chan struct{}, goroutines)
		var mu sync.Mutex
		total := 0
		for i := range goroutines {
			wait.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					for range 64 {
						if err := turn(); err != nil {
							b.Error(err)
							return
						}
						turns[i]++
					}
					mu.Lock()
					total += 64
					done := total >= b.N
					mu.Unlock()
					if done {
						select {
						case left <- struct{}{}:
						default:
						}
						return
					}
				}
			})
		}
		<-left
		b.StopTimer()
		close(stop)
		wait.Wait()
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
		run(b, func() error {
			mu.Lock()
			mu.Unlock() //nolint:staticcheck // an empty section is what is measured
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

// BenchmarkHeld holds 100,000 locks. It reports the heap of each, the goroutines of all, and the part of one core that
// renewing them every 10 seconds takes.
func BenchmarkHeld(b *testing.B) {
	const locks = 100_000
	ctx := context.Background()
	for b.Loop() {
		l := newBenchLocker(b, holdfast.WithTTL(30*time.Second))
		keys := make([]string, locks)
		for i := range keys {
			keys[i] = fmt.Sprintf("invoice/%06d", i)
		}
		held := make([]*holdfast.Lock, locks)
		before, goroutines := heap(), runtime.NumGoroutine()
		for i, key := range keys {
			lock, err := l.TryAcquire(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			held[i] = lock
		}
		b.ReportMetric(float64(heap()-before)/locks, "B/lock")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		runtime.KeepAlive(held)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
