package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

const (
	histories = 8
	changes   = 60 // of the leader, in each history
)

// TestRandomChanges has four candidates lead in turns, through everything that can end a term and
// everything that memhold can do to them. HOLDFAST_SEED repeats one history. The invariants:
//
//   - nobody leads before the context of the former leader was cancelled, unless the memory was
//     made to lose the key: then the one who lost it is told before its lease is over;
//   - no lock is released while its function runs, before the grace is over;
//   - terms rise;
//   - whoever panics leaves no lock behind;
//   - somebody leads again soon when the faults are over;
//   - a term that ended by a loss is told to onError;
//   - no goroutine is left (testing/synctest).
func TestRandomChanges(t *testing.T) {
	if text := os.Getenv("HOLDFAST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomChanges(t, seed)
		return
	}
	total := 0
	for range histories {
		total += randomChanges(t, rand.Uint64())
	}
	if total < 400 {
		t.Errorf("%d changes of the leader in all, want 400 at least", total)
	}
}

// history is one random history.
type history struct {
	*stage
	rand *rand.Rand
	all  []*actor
	lost map[holdfast.Token]time.Duration // terms whose key the memory lost, and when

	preferences bool // the first two candidates are preferred

	// what the current term's function does at its end
	hang, panics bool
	fail         error
	sick         bool
	trip         chan struct{} // has the function return by itself
}

// actor is a candidate of a history, and what has been done to it.
type actor struct{ *candidate }

const randomGrace = 5 * time.Second

func randomChanges(t *testing.T, seed uint64) (started int) {
	t.Helper()
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		play(t, func(s *stage) {
			h := &history{stage: s, rand: rand.New(rand.NewPCG(seed, seed)),
				lost: make(map[holdfast.Token]time.Duration)}
			s.excused, s.grace = h.excused, randomGrace
			h.preferences = h.rand.IntN(2) == 0
			for i := range 4 {
				h.join(i)
			}
			for s.starts() < changes && !t.Failed() {
				h.step()
			}
			for _, a := range h.all {
				a.client.Faults().Clear()
			}
			h.mustRecover()
			h.letGo()
			for _, a := range h.all {
				a.leave()
			}
			started = s.starts()
		})
	})
	return started
}

// join has a process take the place of the ith.
func (h *history) join(i int) {
	name := string(rune('a' + i))
	a := &actor{}
	options := []election.Option{election.WithGrace(randomGrace),
		election.WithPause(10*time.Millisecond, time.Second),
		election.WithHealthCheck(500*time.Millisecond, func(context.Context) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.sick {
				h.sick = false
				return errors.New("sick")
			}
			return nil
		})}
	if h.preferences {
		options = append(options, election.WithPreferred(i < 2))
	}
	a.candidate = h.candidate(name, options...)
	a.run(h.lead)
	if i < len(h.all) {
		h.all[i] = a
	} else {
		h.all = append(h.all, a)
	}
}

// lead is the function of all candidates.
func (h *history) lead(ctx context.Context, _ election.Term) error {
	h.mu.Lock()
	trip := make(chan struct{})
	h.trip = trip
	h.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-trip:
	}
	h.mu.Lock()
	hang, panics, fail := h.hang, h.panics, h.fail
	h.hang, h.panics, h.fail = false, false, nil
	h.mu.Unlock()
	if hang {
		time.Sleep(2 * randomGrace)
	}
	if panics {
		panic("history")
	}
	return fail
}

// letGo has the function that runs return by itself.
func (h *history) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trip != nil {
		close(h.trip)
		h.trip = nil
	}
}

// step does one thing, and lets some time pass.
func (h *history) step() {
	i := h.rand.IntN(len(h.all))
	if h.rand.IntN(4) > 0 { // mostly, to the leader
		for j, a := range h.all {
			if who := h.leaders(); len(who) > 0 && a.name == who[len(who)-1] {
				i = j
			}
		}
	}
	a := h.all[i]
	h.mu.Lock()
	h.hang = h.rand.IntN(10) == 0
	if h.rand.IntN(4) == 0 {
		h.fail = errWork
	}
	h.mu.Unlock()
	switch h.rand.IntN(12) {
	case 0:
		a.client.Faults().Freeze()
	case 1:
		a.client.Faults().Clear()
	case 2:
		a.client.Faults().Inject(memhold.Fault{Times: 1 + h.rand.IntN(5), CutReply: true})
	case 3:
		a.client.Faults().Inject(memhold.Fault{Times: 1 + h.rand.IntN(20),
			Delay: time.Duration(h.rand.Int64N(int64(time.Second)))})
	case 4:
		a.client.Faults().Inject(memhold.Fault{Times: 1 + h.rand.IntN(20),
			Err: errors.New("refused")})
	case 5:
		h.lose()
	case 6:
		h.memory.Faults().Restart()
	case 7:
		ctx, cancel := context.WithTimeout(background,
			time.Duration(h.rand.Int64N(int64(2*randomGrace))))
		_ = a.Resign(ctx)
		cancel()
	case 8:
		h.mu.Lock()
		h.panics = true
		h.mu.Unlock()
		h.letGo()
	case 9:
		h.letGo()
	case 10:
		h.mu.Lock()
		h.sick = true
		h.mu.Unlock()
	case 11:
		h.replace(i)
	}
	time.Sleep(time.Duration(h.rand.Int64N(int64(ttl))))
	synctest.Wait()
	h.revive()
}

// lose has the memory lose the key. Its holder may lead on until it is told.
func (h *history) lose() {
	e, err := h.memory.Inspect(background, "scheduler")
	if err != nil {
		h.t.Fatal(err)
	}
	if h.memory.Faults().Lose("scheduler") {
		h.mu.Lock()
		h.lost[e.Holder.Token] = now()
		h.mu.Unlock()
	}
}

// excused reports whether a leader may not know yet that it has lost the lock. The caller holds
// h.mu.
func (h *history) excused(r *reign) bool {
	at, lost := h.lost[r.token]
	return lost && now() < at+ttl
}

// replace ends a process, in one way or another, and starts another in its place.
func (h *history) replace(i int) {
	a := h.all[i]
	if h.rand.IntN(2) == 0 {
		a.locker.Close()
		a.mustEnd()
		if !errors.Is(a.err, holdfast.ErrClosed) && a.panic == nil {
			h.t.Errorf("Run returned %v after Close, want ErrClosed", a.err)
		}
	}
	a.leave()
	h.join(i)
}

// revive starts processes again that have panicked, and checks that they have left no lock.
func (h *history) revive() {
	for i, a := range h.all {
		select {
		case <-a.ran:
		default:
			continue
		}
		if a.panic != "history" {
			h.t.Errorf("%s: Run returned %v, panic %v; want the panic \"history\"",
				a.name, a.err, a.panic)
		}
		a.client.Faults().Clear()
		h.mustLetGo(a)
		a.leave()
		h.join(i)
	}
}

// mustLetGo fails the test if a candidate has panicked and its lock stays, although its path works.
// A release that a fault has hit is made again within a second, or when its time is over.
func (h *history) mustLetGo(a *actor) {
	for until := now() + 7*time.Second; ; time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		e, err := h.memory.Inspect(background, "scheduler")
		if err != nil {
			h.t.Fatal(err)
		}
		if holder := driver.ParseOwner(e.Holder.Owner).Label; holder != a.name {
			return
		}
		if now() > until {
			h.t.Fatalf("the lock is still held by %s, which has panicked", a.name)
		}
	}
}

// mustRecover fails the test unless somebody leads soon.
func (h *history) mustRecover() {
	h.mu.Lock()
	h.hang, h.panics, h.sick = false, false, false
	h.mu.Unlock()
	until := now() + 2*ttl + 5*time.Second + 3*randomGrace
	for synctest.Wait(); len(h.leaders()) == 0; synctest.Wait() {
		if now() > until {
			h.t.Fatal("nobody leads although all faults are over")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
