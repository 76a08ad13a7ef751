//go:build unix

package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// BenchmarkHeld holds 100,000 locks on memhold. It reports the heap and the processor time that
// renewing takes for each lock, the goroutines of all, and the percentage of one core that it takes
// to renew all of them every 10 seconds.
func BenchmarkHeld(b *testing.B) {
	const locks = 100_000
	ctx := context.Background()
	for b.Loop() {
		l := newBenchLocker(b, holdfast.WithTTL(6*time.Second))
		keys := make([]string, locks)
		for i := range keys {
			keys[i] = fmt.Sprintf("invoice/%06d", i)
		}
		held := make([]*holdfast.Lock, locks)
		before, goroutines := heapInUse(), runtime.NumGoroutine()
		for i, key := range keys {
			lock, err := l.TryAcquire(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			held[i] = lock
		}
		b.ReportMetric(float64(heapInUse()-before)/locks, "B/lock")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")

		const rounds = 3
		used := processorTime(b)
		for range time.Tick(10 * time.Millisecond) {
			if l.Stats().Renewed >= rounds*locks {
				break
			}
		}
		each := float64(processorTime(b)-used) / float64(l.Stats().Renewed)
		b.ReportMetric(each, "cpu-ns/renewal")
		b.ReportMetric(each*locks/float64(10*time.Second)*100, "%core")
		if s := l.Stats(); s.Held != locks {
			b.Errorf("%d of %d locks are held, want all", s.Held, locks)
		}
		runtime.KeepAlive(held)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime is what the process has used so far on all cores.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
