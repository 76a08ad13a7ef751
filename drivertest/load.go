package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lasting gives the claim a lease that outlasts thousands of requests on a slow machine.
func (s *suite) lasting(b driver.Backend, c driver.Claim) driver.Claim {
	for _, ttl := range []time.Duration{2 * time.Minute, time.Hour} {
		if l, ok := b.(driver.Limited); !ok || l.CheckTTL(ttl) == nil {
			c.TTL = max(c.TTL, ttl)
		}
	}
	return c
}

func (s *suite) light() bool { return s.Light || testing.Short() }

// The rules hold for many keys and many callers.
var loadRules = []rule{
	{name: "Load/TenThousandKeys", check: func(s *suite) {
		n := 10_000
		if s.light() {
			n = 1_000
		}
		b := s.open()
		claims := make([]driver.Claim, n)
		for i := range claims {
			claims[i] = s.lasting(b, s.claim(fmt.Sprintf("key/%d", i)))
		}
		s.each(claims, func(ctx context.Context, c driver.Claim) error {
			return outcome(driver.Held)(b.Acquire(ctx, c))
		})
		for i := 0; i < n; i += 1000 {
			s.batch(b, claims[i:i+1000], slices.Repeat([]driver.State{driver.Held}, 1000)...)
		}
		s.each(claims, func(ctx context.Context, c driver.Claim) error {
			return outcome(driver.Held)(b.Release(ctx, c))
		})
		if i, ok := b.(driver.Inspector); ok {
			s.lists(i, "", nil)
		}
		s.free(b, claims[0].Key)
		s.free(b, claims[n-1].Key)
	}},
	{name: "Load/Stress", check: func(s *suite) { s.stress(false) }},
	{name: "Load/StressWithQueue", needs: queue, check: func(s *suite) { s.stress(true) }},
}

// each calls f for every claim, from many goroutines.
func (s *suite) each(claims []driver.Claim, f func(context.Context, driver.Claim) error) {
	s.Helper()
	const workers = 32
	var next atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Add(1)
		go func() {
			defer done.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(claims) {
					return
				}
				ctx, cancel := s.limit()
				err := f(ctx, claims[i])
				cancel()
				if err != nil {
					s.Errorf("%q: %v", claims[i].Key, err)
					return
				}
			}
		}()
	}
	done.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// outcome returns a function that gives an error for any other answer than the wanted one.
func outcome(want driver.State) func(driver.Result, error) error {
	return func(r driver.Result, err error) error {
		if err == nil && r.State != want {
			err = fmt.Errorf("%v, want %v", r.State, want)
		}
		return err
	}
}

// register is what a lock protects in a stress test.
type register struct {
	mu     sync.Mutex
	holder string       // who is inside
	token  driver.Token // of the last one who was
	turns  int
}

// stress has many workers acquire, renew, give up and release a few keys. Its invariants:
//
//   - nobody is granted a key while another is inside that has not released it;
//   - each grant has a larger token than the one before, blocks included;
//   - a holder can renew, and its release finds that it held the key;
//   - in the end every key is free.
//
// No lease ends while it runs.
func (s *suite) stress(queue bool) {
	s.Helper()
	const workers, keys = 16, 3
	rounds := 40
	if s.light() {
		rounds = 10
	}
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	clients := []driver.Backend{s.open(), s.open()}
	registers := make([]register, keys)
	s.Cleanup(func() {
		turns := 0
		for k := range registers {
			turns += registers[k].turns
			if h := registers[k].holder; h != "" {
				s.Errorf("key %d is still held by %q", k, h)
			}
		}
		if turns == 0 {
			s.Errorf("nobody was ever granted a key")
		}
	})
	var done sync.WaitGroup
	for i := range workers {
		w := worker{suite: s, random: rand.New(rand.NewPCG(seed, uint64(i))),
			client: clients[i%len(clients)], registers: registers, queue: queue}
		done.Add(1)
		go func() {
			defer done.Done()
			for range rounds {
				if err := w.round(); err != nil {
					s.Errorf("worker %d: %v", i, err)
					return
				}
			}
		}()
	}
	done.Wait()
	if s.Failed() {
		s.FailNow()
	}
	for k := range registers {
		s.free(clients[0], fmt.Sprint("key", k))
	}
}

// worker is one caller of a stress test.
type worker struct {
	*suite
	random    *rand.Rand
	client    driver.Backend
	registers []register
	queue     bool
}

// round acquires a key, works, and releases it; or gives up.
func (w *worker) round() error {
	k := w.random.IntN(len(w.registers))
	c := w.claim(fmt.Sprint("key", k))
	c.Queue, c.Block = w.queue, w.random.Uint64N(4)
	var grant driver.Result
	for patience := 1 + w.random.IntN(400); ; patience-- {
		r, err := w.tryAcquire(c)
		if err != nil {
			return err
		}
		if r.State == driver.Held {
			grant = r
			break
		}
		if patience == 0 {
			r, err := w.tryRelease(c)
			if err == nil && r.State == driver.Unknown {
				err = fmt.Errorf("unknown outcome of a release after giving up")
			}
			return err
		}
		time.Sleep(step / 5)
	}

	reg := &w.registers[k]
	if err := reg.enter(c, grant.Token); err != nil {
		return err
	}
	for range w.random.IntN(3) {
		if w.random.IntN(4) == 0 {
			time.Sleep(step / 5)
		}
		c.Block = w.random.Uint64N(3)
		r, err := w.tryRenew(c)
		if err != nil {
			return err
		}
		if r.State != driver.Held {
			return fmt.Errorf("renewal of a holder = %v (%v)", r.State, r.Err)
		}
		if c.Block > 0 {
			if err := reg.advance(c, r.Token); err != nil {
				return err
			}
		}
	}
	// From here on the next one may come in, before this call has returned.
	reg.leave()
	return outcome(driver.Held)(w.tryRelease(c))
}

// tryAcquire, tryRenew and tryRelease are calls with a limit each: a round has hundreds of them.
func (w *worker) tryAcquire(c driver.Claim) (driver.Result, error) {
	ctx, cancel := w.limit()
	defer cancel()
	return w.client.Acquire(ctx, c)
}

func (w *worker) tryRenew(c driver.Claim) (driver.Result, error) {
	ctx, cancel := w.limit()
	defer cancel()
	results, err := w.client.Renew(ctx, []driver.Claim{c})
	if err != nil {
		return driver.Result{}, err
	}
	return results[0], nil
}

func (w *worker) tryRelease(c driver.Claim) (driver.Result, error) {
	ctx, cancel := w.limit()
	defer cancel()
	return w.client.Release(ctx, c)
}

func (r *register) enter(c driver.Claim, token driver.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder != "" {
		return fmt.Errorf("%q is granted %q while %q is inside", c.Owner, c.Key, r.holder)
	}
	r.holder = c.Owner
	r.turns++
	return r.raise(c, token)
}

func (r *register) advance(c driver.Claim, token driver.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raise(c, token)
}

func (r *register) raise(c driver.Claim, token driver.Token) error {
	if token <= r.token {
		return fmt.Errorf("token %d of %q follows %d", token, c.Key, r.token)
	}
	r.token = token + driver.Token(max(c.Block, 1)) - 1
	return nil
}

func (r *register) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder = ""
}
