package holdfast_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// BenchmarkAll is what it costs to acquire and release some keys at once, beside one key.
func BenchmarkAll(b *testing.B) {
	ctx := context.Background()
	b.Run("one key", func(b *testing.B) {
		l := newBenchLocker(b)
		b.ReportAllocs()
		for b.Loop() {
			lock, err := l.Acquire(ctx, "invoice/42")
			if err != nil {
				b.Fatal(err)
			}
			lock.Release(ctx)
		}
	})
	for _, n := range []int{1, 2, 8, 64} {
		b.Run(fmt.Sprintf("set of %d", n), func(b *testing.B) {
			benchmarkSet(b, newBenchLocker(b), n)
		})
	}
}

func benchmarkSet(b *testing.B, l *holdfast.Locker, n int) {
	ctx := context.Background()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("invoice/%d", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		set, err := l.AcquireAll(ctx, keys)
		if err != nil {
			b.Fatal(err)
		}
		set.Release(ctx)
	}
}
