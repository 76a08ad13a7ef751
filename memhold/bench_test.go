package memhold_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

func BenchmarkAcquireRelease(b *testing.B) {
	backend := memhold.New()
	defer backend.Close()
	claim := driver.Claim{Key: "invoice/42", Owner: driver.NewOwner(driver.OwnerSuffix("")),
		TTL: 30 * time.Second, Token: 1, Block: 64}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if r, err := backend.Acquire(ctx, claim); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
		if r, err := backend.Release(ctx, claim); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
	}
}

func held(b *testing.B, backend driver.Backend, n int) []driver.Claim {
	suffix := driver.OwnerSuffix("")
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprintf("invoice/%08d", i),
			Owner: driver.NewOwner(suffix), TTL: time.Hour}
	}
	for _, claim := range claims {
		if r, err := backend.Acquire(b.Context(), claim); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
	}
	return claims
}

func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("batch=1000/held=%d", n), func(b *testing.B) {
			backend := memhold.New()
			defer backend.Close()
			claims := held(b, backend, n)
			b.ReportAllocs()
			i, renewed := 0, 0
			for b.Loop() {
				results, err := backend.Renew(b.Context(), claims[i:i+1000])
				if err != nil || results[999].State != driver.Held {
					b.Fatal(err)
				}
				i = (i + 1000) % n
				renewed += 1000
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(renewed), "ns/renewal")
		})
	}
}

// BenchmarkHandoff passes one key back and forth between two claimants, one of which always waits.
func BenchmarkHandoff(b *testing.B) {
	backend := memhold.New()
	defer backend.Close()
	granted := make(chan driver.Notice, 1)
	defer backend.Notify(func(n driver.Notice) { granted <- n })()
	claims := held(b, backend, 1)
	holder, waiter := claims[0], claims[0]
	waiter.Owner = driver.NewOwner("")
	waiter.Queue, holder.Queue = true, true
	b.ReportAllocs()
	for b.Loop() {
		if r, err := backend.Acquire(b.Context(), waiter); err != nil || r.State != driver.Busy {
			b.Fatal(r, err)
		}
		if r, err := backend.Release(b.Context(), holder); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
		if n := <-granted; n.Owner != waiter.Owner {
			b.Fatal(n)
		}
		holder, waiter = waiter, holder
	}
}

// BenchmarkMemory reports the heap of a held key, without its key and owner value.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	suffix := driver.OwnerSuffix("")
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprintf("invoice/%08d", i),
			Owner: driver.NewOwner(suffix), TTL: time.Hour}
	}
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		backend := memhold.New()
		for _, claim := range claims {
			if r, err := backend.Acquire(b.Context(), claim); err != nil || r.State != driver.Held {
				b.Fatal(r, err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "B/key")
		runtime.KeepAlive(claims)
		backend.Close()
	}
}
