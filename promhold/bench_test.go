package promhold_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/promhold"
)

// BenchmarkScrape scrapes while few locks are held, and while very many are.
func BenchmarkScrape(b *testing.B) {
	for _, locks := range []int{100, 100_000} {
		for _, resources := range []int{1, 100} {
			b.Run(fmt.Sprintf("held=%d/resources=%d", locks, resources), func(b *testing.B) {
				metrics := promhold.New(promhold.WithResource(func(key string) string {
					return key[len(key)-2:]
				}), promhold.WithMaxResources(resources))
				memory := memhold.New()
				defer memory.Close()
				l, err := holdfast.New(memory, holdfast.WithHooks(metrics.Hooks(0)))
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				metrics.Follow("main", l)
				for i := range locks {
					if _, err := l.Acquire(b.Context(), fmt.Sprintf("key/%08d", i)); err != nil {
						b.Fatal(err)
					}
				}
				registry := prometheus.NewRegistry()
				registry.MustRegister(metrics)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := registry.Gather(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkPair acquires and releases, without hooks and with those of Metrics.
func BenchmarkPair(b *testing.B) {
	metrics := promhold.New(promhold.WithResource(promhold.UpTo("/")))
	for name, options := range map[string][]holdfast.Option{
		"silent":   nil,
		"promhold": {holdfast.WithHooks(metrics.Hooks(0))},
	} {
		b.Run(name, func(b *testing.B) {
			memory := memhold.New()
			defer memory.Close()
			l, err := holdfast.New(memory, options...)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.ReportAllocs()
			for b.Loop() {
				lock, err := l.TryAcquire(b.Context(), "invoice/42")
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
