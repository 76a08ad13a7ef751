package redishold_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// BenchmarkPair compares an uncontended acquisition and its release with the least that a lock can
// do by the same client library: SET NX PX, and a script that compares and deletes. The variants
// take turns in one run, so that their ratio means something on a busy machine. It reports medians
// in microseconds, ratios to the floor, and what the server's CPU had to do for a pair.
func BenchmarkPair(b *testing.B) {
	server := redistest.Start(b)
	variants := pairVariants(b, server)
	for _, goroutines := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			const rounds = 5
			medians := make([][]time.Duration, len(variants))
			rates := make([][]float64, len(variants))
			costs := make([][]float64, len(variants))
			for b.Loop() {
				for range rounds {
					for i, v := range variants {
						median, rate, cost := measure(b, server, goroutines, v.pair)
						medians[i] = append(medians[i], median)
						rates[i] = append(rates[i], rate)
						costs[i] = append(costs[i], cost)
					}
				}
			}
			for i, v := range variants {
				p50, floor := middle(medians[i]), middle(medians[0])
				b.ReportMetric(float64(p50.Nanoseconds())/1000, v.name+"-us")
				b.ReportMetric(float64(p50)/float64(floor), v.name+"-x-latency")
				b.ReportMetric(middle(rates[i])/middle(rates[0]), v.name+"-x-rate")
				b.ReportMetric(middle(costs[i]), v.name+"-server-us")
			}
			b.ReportMetric(middle(rates[0]), "floor-pairs/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

type pairVariant struct {
	name string
	pair func(ctx context.Context, key string) error
}

func pairVariants(b *testing.B, server *redistest.Server) []pairVariant {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true,
		DisableRetry:      true,
		PipelineMultiplex: -1, AlwaysPipelining: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	const deleteMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
	sha := server.String(b, "SCRIPT", "LOAD", deleteMine)
	suffix := driver.OwnerSuffix("")
	backend := open(b, server.URL())
	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
	if err != nil {
		b.Fatal(err)
	}
	var highest atomic.Uint64 // as a Locker proposes tokens: never twice
	highest.Store(uint64(time.Now().UnixMicro()))
	return []pairVariant{
		{"floor", func(ctx context.Context, key string) error {
			owner := driver.NewOwner(suffix)
			if err := client.Do(ctx,
				client.B().Set().Key(key).Value(owner).Nx().PxMilliseconds(
					30000).Build()).Error(); err != nil {
				return err
			}
			return client.Do(ctx,
				client.B().Evalsha().Sha1(sha).Numkeys(1).Key(key).Arg(owner).Build()).Error()
		}},
		{"driver", func(ctx context.Context, key string) error {
			claim := driver.Claim{Key: key, Owner: driver.NewOwner(suffix), TTL: 30 * time.Second,
				Token: driver.Token(highest.Add(64)), Block: 64}
			if r, err := backend.Acquire(ctx, claim); err != nil || r.State != driver.Held {
				return fmt.Errorf("%v: %w", r.State, err)
			}
			_, err := backend.Release(ctx, claim)
			return err
		}},
		{"locker", func(ctx context.Context, key string) error {
			lock, err := locker.TryAcquire(ctx, key)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}},
	}
}

// measure runs pairs for a while on as many keys as goroutines. It returns the median time and the
// rate of pairs, and the microseconds of server CPU that one costs.
func measure(b *testing.B, server *redistest.Server, goroutines int,
	pair func(context.Context, string) error) (time.Duration, float64, float64) {
	const span = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all []time.Duration
	var done sync.WaitGroup
	cpu := server.CPU(b)
	start := time.Now()
	for i := range goroutines {
		done.Go(func() {
			key := fmt.Sprint("bench", i)
			var mine []time.Duration
			for begin := time.Now(); begin.Sub(start) < span; {
				if err := pair(ctx, key); err != nil {
					b.Error(err)
					return
				}
				end := time.Now()
				mine = append(mine, end.Sub(begin))
				begin = end
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	done.Wait()
	took := time.Since(start)
	cpu = server.CPU(b) - cpu
	if len(all) == 0 {
		b.Fatal("nothing was measured")
	}
	return middle(all), float64(len(all)) / took.Seconds(),
		float64(cpu.Microseconds()) / float64(len(all))
}

func middle[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// BenchmarkAllocations counts what a pair allocates, at the driver's level.
func BenchmarkAllocations(b *testing.B) {
	server := redistest.Start(b)
	for _, v := range pairVariants(b, server) {
		b.Run(v.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			key := strings.Repeat("k", 20)
			for b.Loop() {
				if err := v.pair(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
