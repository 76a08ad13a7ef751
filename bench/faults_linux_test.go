package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

func TestKeysThatAreLeftBehindAreCounted(t *testing.T) {
	s := newServer(t)
	e := &env{nodes: []*server{s}}
	for _, key := range []string{"bench/1", "lock:bench/2", "holdfast:f:{x}"} {
		if _, err := s.do("SET", key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := e.locksLeft(); err != nil || left != 2 {
		t.Errorf("%d keys of locks, %v; want 2", left, err)
	}
}

// TestFaultsBefallNodesAndEnd: the nodes answer before and after each fault, and those with a fault
// answer late, or not at all, during it.
func TestFaultsBefallNodesAndEnd(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			e := &env{dir: t.TempDir()}
			leave, err := e.enter(t.Context(), &scenario{nodes: 3, proxies: f.proxies})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			// late returns how many nodes do not answer within half of lateness. An answer that
			// comes too late because the machine is busy counts as none: it may be that of a slow
			// node.
			late := func() (n int) {
				for _, address := range e.at.Redis {
					begin := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), lateness/2)
					client, err := rueidis.NewClient(
						rueidis.ClientOption{InitAddress: []string{address},
							ForceSingleClient: true,
							DisableRetry:      true, DisableCache: true,
							ConnWriteTimeout: lateness / 2})
					if err == nil {
						err = client.Do(ctx, client.B().Ping().Build()).Error()
						client.Close()
					}
					if err != nil || time.Since(begin) > lateness/2 {
						n++
					}
					cancel()
				}
				return n
			}
			// On a busy machine a healthy node may be late for a while.
			await(t, "all nodes answer before the fault", func() bool { return late() == 0 })
			end, err := f.begin(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if f.name == "two-stopped" {
				want = 2
			}
			await(t, fmt.Sprintf("just %d nodes do not answer in time", want), func() bool {
				n := late()
				if n < want {
					t.Fatalf("%d nodes do not answer in time, want %d", n, want)
				}
				return n == want
			})
			if err := end(); err != nil {
				t.Fatal(err)
			}
			await(t, "all nodes answer", func() bool { return late() == 0 })
		})
	}
}

func TestProxyDelaysAnswers(t *testing.T) {
	e := &env{dir: t.TempDir()}
	const delay = 20 * time.Millisecond
	leave, err := e.enter(t.Context(), &scenario{nodes: 1, proxies: 1, delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	w := &server{client: goredis.NewClient(&goredis.Options{Addr: e.at.Redis[0], Protocol: 2,
		DisableIdentity: true})}
	defer w.client.Close()
	for i := range 3 {
		begin := time.Now()
		reply, err := w.do("ECHO", i)
		if err != nil || reply != fmt.Sprint(i) {
			t.Fatalf("reply %v, %v", reply, err)
		}
		if took := time.Since(begin); took < delay {
			t.Errorf("an answer after %v, before the delay of %v is over", took, delay)
		}
	}
	if e.at.Redis[0] == e.nodes[0].address {
		t.Error("drivers do not go through the proxy")
	}
}

func TestMajority(t *testing.T) {
	for _, c := range []struct {
		results []error
		ok      bool
	}{
		{[]error{nil, nil, nil}, true},
		{[]error{errLost, nil, errLost, nil, nil}, true},
		{[]error{errLost, nil, errLost, nil, errLost}, false},
		{[]error{errLost, errLost, errLost}, false},
	} {
		results := make(chan error, 5)
		for _, err := range c.results {
			results <- err
		}
		if err := majority(results, 5); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.results, err)
		}
	}
}
