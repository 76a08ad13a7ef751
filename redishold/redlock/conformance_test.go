package redlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/redishold/redistest"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// The contract, over five real servers.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			for _, s := range c.servers {
				s.Do(t, "FLUSHALL")
			}
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return &settled{client: c.client(t, "restart-guard=0s&node-timeout=2s")}
				},
				Lose: func(t testing.TB, key string) {
					for _, s := range c.servers {
						s.Do(t, "DEL", key)
					}
				},
				CutReply: func(_ testing.TB, b driver.Backend) { b.(*settled).cut = true },
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					for _, s := range c.servers {
						s.Freeze()
					}
					return func() {
						for _, s := range c.servers {
							s.Thaw()
						}
					}
				},
				Forget: func(t testing.TB) {
					for _, s := range c.servers {
						s.Kill()
						s.Run(t)
					}
				},
				KillHolder: func(t testing.TB, key string) { killHolder(t, c.url(calm), key) },
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true, CanKillHolder: true,
		},
	})
}

// settled is a client whose calls return when also the nodes that were not waited for have answered: the suite looks from a second
// client at what exactly has changed, while only a majority is promised to have. And it loses a reply, when it is
// told to.
type settled struct {
	*client
	cut bool
}

// settle waits until no call is under way, or for as long as a node may take: in a rule that freezes the servers none will
// answer.
func (s *settled) settle(ctx context.Context) error {
	if s.cut {
		s.cut = false
		return &driver.Error{Maybe: true, Err: errors.New("reply lost")}
	}
	for i := 0; s.pending() && i < 100; i++ {
		runtime.Gosched()
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.pending() && ctx.Err() == nil {
		<-look.C
	}
	return nil
}

// Acquire is the Quorum's, except that it asks again when nobody got a majority: the suite's rule about contenders is for a backend
// that decides at one place.
func (s *settled) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	for {
		r, err := s.Quorum.Acquire(ctx, claim)
		if err == nil {
			err = s.settle(ctx)
		}
		if err != nil || r.State != driver.Busy || claim.Queue {
			return r, err
		}
		if e, err := s.Inspect(ctx, claim.Key); err != nil || e.Holder.Owner != "" {
			return r, nil
		}
		pause := time.NewTimer(rand.N(5 * time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return r, nil
		}
	}
}

func (s *settled) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r, err := s.Quorum.Renew(ctx, claims)
	if err == nil {
		err = s.settle(ctx)
	}
	return r, err
}

func (s *settled) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := s.Quorum.Release(ctx, claim)
	if err == nil {
		err = s.settle(ctx)
	}
	return r, err
}

// holderEnv makes the test binary a process that holds a key: URL, key and TTL, separated by newlines.
const holderEnv = "REDLOCK_TEST_HOLDER"

// holdForEver acquires, says "held" and waits to be killed.
func holdForEver(order string) error {
	part := strings.Split(order, "\n")
	ttl, err := time.ParseDuration(part[2])
	if err != nil {
		return err
	}
	ctx, cancel := limit()
	defer cancel()
	q, err := redlock.Open(ctx, part[0])
	if err != nil {
		return err
	}
	if r, err := q.Acquire(ctx, newClaim(part[1], ttl)); err != nil || r.State != driver.Held {
		return fmt.Errorf("Acquire = %v, %w", r.State, err)
	}
	fmt.Println("held")
	select {}
}

// killHolder has a process of its own hold the key, and kills it.
func killHolder(t testing.TB, url, key string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join([]string{url, key, drivertest.DefaultShortTTL.String()}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = redistest.StartProcess(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "held\n" {
		t.Fatalf("the holder said %q", line)
	}
}
