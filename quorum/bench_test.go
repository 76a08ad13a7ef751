package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// instant is a node that grants everything at once. Over it, one measures what a Quorum itself
// costs.
type instant struct{}

func (instant) Acquire(_ context.Context, claim driver.Claim) (driver.Result, error) {
	return driver.Result{State: driver.Held, Token: claim.Token}, nil
}

func (instant) Renew(_ context.Context, claims []driver.Claim) ([]driver.Result, error) {
	results := make([]driver.Result, len(claims))
	for i := range results {
		results[i].State = driver.Held
	}
	return results, nil
}

func (instant) Release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{State: driver.Held}, nil
}

func (instant) Close() error { return nil }

// pipelined answers from one more goroutine for each node, like a connection that all calls share.
type pipelined struct {
	instant
	requests chan chan struct{}
}

func newPipelined() *pipelined {
	p := &pipelined{requests: make(chan chan struct{}, 1024)}
	go func() {
		for reply := range p.requests {
			reply <- struct{}{}
		}
	}()
	return p
}

func (p *pipelined) ask() {
	reply := make(chan struct{}, 1)
	p.requests <- reply
	<-reply
}

func (p *pipelined) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	p.ask()
	return p.instant.Acquire(ctx, claim)
}

func (p *pipelined) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	p.ask()
	return p.instant.Release(ctx, claim)
}

func (p *pipelined) Close() error {
	close(p.requests)
	return nil
}

// BenchmarkPair compares an acquisition and a release over five nodes with the least code that does
// it: a goroutine for each node, and three answers to wait for. This floor has no bound on a call,
// no order, and no token.
func BenchmarkPair(b *testing.B) {
	for _, kind := range []struct {
		name string
		node func() driver.Backend
	}{
		{"instant", func() driver.Backend { return instant{} }},
		{"pipelined", func() driver.Backend { return newPipelined() }},
	} {
		open := func() (nodes []driver.Backend) {
			for range 5 {
				nodes = append(nodes, kind.node())
			}
			return nodes
		}
		b.Run(kind.name+"/floor", func(b *testing.B) {
			nodes := open()
			var stragglers sync.WaitGroup
			defer func() {
				stragglers.Wait()
				for _, n := range nodes {
					n.Close()
				}
			}()
			benchmarkPairs(b, func(ctx context.Context, claim driver.Claim) error {
				return floor(ctx, nodes, &stragglers, claim)
			})
		})
		b.Run(kind.name+"/quorum", func(b *testing.B) {
			q, err := quorum.New(open(), quorum.WithGuard(0))
			if err != nil {
				b.Fatal(err)
			}
			defer q.Close()
			benchmarkPairs(b, func(ctx context.Context, claim driver.Claim) error {
				return pair(ctx, q, claim)
			})
			if s := q.Status(); s.SecondRounds*100 > s.Acquired {
				b.Errorf("%d second rounds in %d acquisitions; want less than one in a hundred",
					s.SecondRounds, s.Acquired)
			}
		})
	}
}

func benchmarkPairs(b *testing.B, pair func(context.Context, driver.Claim) error) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			var count atomic.Int64
			suffix := driver.OwnerSuffix("")
			b.ReportAllocs()
			b.SetParallelism(workers)
			run := func(more func() bool) {
				key := fmt.Sprint("k", count.Add(1))
				for more() {
					if err := pair(context.Background(),
						driver.Claim{Key: key, Owner: driver.NewOwner(suffix), TTL: 30e9,
							Token: 1}); err != nil {
						b.Error(err)
						return
					}
				}
			}
			if workers == 1 {
				run(b.Loop)
				return
			}
			b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
		})
	}
}

func pair(ctx context.Context, node driver.Backend, claim driver.Claim) error {
	r, err := node.Acquire(ctx, claim)
	if err == nil && r.State == driver.Held {
		r, err = node.Release(ctx, claim)
	}
	if err == nil && r.State != driver.Held {
		err = fmt.Errorf("%v; want held", r.State)
	}
	return err
}

func floor(ctx context.Context, nodes []driver.Backend, stragglers *sync.WaitGroup,
	claim driver.Claim) error {
	type answer struct {
		r   driver.Result
		err error
	}
	for _, call := range []func(driver.Backend) (driver.Result, error){
		func(n driver.Backend) (driver.Result, error) { return n.Acquire(ctx, claim) },
		func(n driver.Backend) (driver.Result, error) { return n.Release(ctx, claim) },
	} {
		answers := make(chan answer, len(nodes))
		for _, n := range nodes {
			stragglers.Go(func() {
				r, err := call(n)
				answers <- answer{r, err}
			})
		}
		for range len(nodes)/2 + 1 {
			if a := <-answers; a.err != nil || a.r.State != driver.Held {
				return fmt.Errorf("%v, %v; want held", a.r.State, a.err)
			}
		}
	}
	return nil
}

// BenchmarkRenew renews a thousand held claims over five nodes in one call, as a watchdog does, by
// one goroutine or by many; and one claim with a block of tokens, as at the end of a run.
func BenchmarkRenew(b *testing.B) {
	const batch = 1000
	nodes := make([]driver.Backend, 5)
	for i := range nodes {
		nodes[i] = instant{}
	}
	q, err := quorum.New(nodes, quorum.WithGuard(0), quorum.WithNodeTimeout(10e9))
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	claims := make([]driver.Claim, batch)
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprint("k", i), TTL: 30e9, Token: 1,
			Owner: driver.NewOwner(driver.OwnerSuffix(""))}
		r, err := q.Acquire(context.Background(), claims[i])
		if err != nil || r.State != driver.Held {
			b.Fatalf("Acquire = %v, %v; want held", r.State, err)
		}
	}
	renew := func() {
		if results, err := q.Renew(context.Background(), claims); err != nil ||
			results[batch-1].State != driver.Held {
			b.Errorf("Renew = %v, %v; want held", results, err)
		}
	}
	b.Run("workers=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			renew()
		}
	})
	b.Run("run", func(b *testing.B) {
		b.ReportAllocs()
		run := claims[0]
		run.Block = 3
		for b.Loop() {
			if _, err := q.Renew(context.Background(), []driver.Claim{run}); err != nil {
				b.Error(err)
			}
		}
	})
	b.Run("workers=16", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				renew()
			}
		})
	})
}
