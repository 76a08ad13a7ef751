package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// Readers and writers of several Lockers, on all terms, with and without faults on their paths: no
// reader is ever beside a writer, tokens are as promised, and nothing is left behind.
func TestReadersAndWriters(t *testing.T) {
	for _, turns := range []int{1, 3, holdfast.DefaultCohortTurns} {
		for _, trouble := range []bool{false, true} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("turns=%d trouble=%v seed=%d", turns, trouble, seed),
					func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							stressReaders(t, seed, turns, trouble)
						})
					})
			}
		}
	}
}

// section is what the lock guards. It knows who is inside, and which tokens were seen.
type section struct {
	t             *testing.T
	mu            sync.Mutex
	inside        map[*holdfast.Lock]bool // whether it shares
	seen          map[holdfast.Token]bool // whether it is a writer's
	read, written holdfast.Token          // the largest token of a reader, and of a writer
}

// latest returns the token that an acquisition that begins now must exceed.
func (s *section) latest(shared bool) holdfast.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared {
		return s.written
	}
	return max(s.read, s.written)
}

func (s *section) enter(lock *holdfast.Lock, shared bool, above holdfast.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := lock.Token()
	writers, used := s.seen[token]
	if used && (writers || !shared) || token <= above { // readers may have one token
		s.t.Errorf("shared %v: token %d, used before: %v; it must exceed %d", shared, token,
			used, above)
	}
	s.seen[token] = !shared
	s.note(lock, shared)
}

// note counts the lock as a reader's or a writer's, and checks that it may be inside. A lock that
// has just been lost does not count: its goroutine leaves at the same moment of fake time.
func (s *section) note(lock *holdfast.Lock, shared bool) {
	s.inside[lock] = shared
	if shared {
		s.read = max(s.read, lock.Token())
	} else {
		s.written = max(s.written, lock.Token())
	}
	readers, writers := 0, 0
	for lock, shared := range s.inside {
		switch {
		case lock.Err() != nil:
		case shared:
			readers++
		default:
			writers++
		}
	}
	if writers > 1 || writers == 1 && readers > 0 {
		s.t.Errorf("%d writers and %d readers hold the key at once", writers, readers)
	}
}

// downgrade notes that a writer becomes a reader.
func (s *section) downgrade(lock *holdfast.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(lock, true)
}

func (s *section) leave(lock *holdfast.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inside, lock)
}

func stressReaders(t *testing.T, seed uint64, turns int, trouble bool) {
	b := newBench(t, memhold.WithPresence(2*time.Second))
	var lockers []*holdfast.Locker
	var paths []memhold.Faults
	for range 4 {
		l, faults := b.locker(holdfast.WithTTL(3*time.Second),
			holdfast.WithCohort(turns, 20*time.Millisecond))
		lockers, paths = append(lockers, l), append(paths, faults)
	}
	done := make(chan struct{})
	var chaos sync.WaitGroup
	if trouble {
		chaos.Go(func() { disturb(seed, paths, done) })
	}
	closing := lockers[3]
	chaos.Go(func() {
		time.Sleep(1500 * time.Millisecond)
		if err := closing.Close(); err != nil && !trouble {
			t.Error(err)
		}
	})
	expected := func(l *holdfast.Locker, err error) bool {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrHeld) ||
			l == closing && errors.Is(err, holdfast.ErrClosed) ||
			trouble && (errors.Is(err, holdfast.ErrUnavailable) ||
				errors.Is(err, holdfast.ErrUnknown))
	}

	s := &section{t: t, inside: make(map[*holdfast.Lock]bool),
		seen: make(map[holdfast.Token]bool)}
	var mu sync.Mutex
	got := make(map[bool]int)
	together(1000, func(i int) {
		random := rand.New(rand.NewPCG(seed, uint64(i)+1))
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(background,
			time.Duration(random.IntN(4000))*time.Millisecond)
		defer cancel()
		l := lockers[random.IntN(len(lockers))]
		shared := random.IntN(4) > 0
		var options []holdfast.AcquireOption
		if shared {
			options = append(options, holdfast.WithShared())
		}
		switch random.IntN(10) {
		case 0:
			options = append(options, holdfast.WithoutRenewal())
		case 1:
			options = append(options, holdfast.WithTTL(2*time.Second))
		case 2:
			options = append(options, holdfast.WithMaxHold(3*time.Second))
		}
		acquire := l.Acquire
		if random.IntN(4) == 0 {
			acquire = l.TryAcquire
		}
		above := s.latest(shared)
		lock, err := acquire(ctx, "key", options...)
		if err != nil {
			if !expected(l, err) {
				t.Errorf("unexpected error: %v", err)
			}
			return
		}
		if lock.Err() != nil {
			return // lost by Close, before anybody could use it
		}
		s.enter(lock, shared, above)
		work := func() {
			ctx, stop := context.WithTimeout(lock.Context(background),
				time.Duration(random.IntN(8))*time.Millisecond)
			<-ctx.Done()
			stop()
		}
		work()
		if !shared && random.IntN(3) == 0 && lock.Err() == nil {
			// From the call on it counts as a reader: whatever the answer, others may be let in.
			s.downgrade(lock)
			shared = true
			// The lock's own context, because a goroutine that has lost the lock is not inside any
			// more.
			if err := lock.Downgrade(lock.Context(ctx)); err != nil && !expected(l, err) &&
				!errors.Is(err, holdfast.ErrLost) {
				t.Errorf("downgrade: %v", err)
			}
			if lock.Err() == nil {
				work()
			}
		}
		mu.Lock()
		got[shared]++
		mu.Unlock()
		s.leave(lock)
		if err := lock.Release(background); err != nil && !trouble && l != closing {
			t.Errorf("release: %v", err)
		}
	})
	close(done)
	chaos.Wait()
	for _, path := range paths {
		path.Clear()
	}
	t.Logf("%d readers and %d writers got the key", got[true], got[false])
	if got[true] < 10 || got[false] < 5 {
		t.Errorf("only %d readers and %d writers got the key, want at least 10 and 5",
			got[true], got[false])
	}
	b.release(b.acquire(lockers[0], "key"))
}

// disturb makes the paths misbehave until done is closed, in ways that take no key from its holder.
func disturb(seed uint64, paths []memhold.Faults, done chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 0))
	for {
		select {
		case <-done:
			return
		default:
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
		path := paths[random.IntN(len(paths))]
		switch random.IntN(5) {
		case 0:
			path.Freeze()
			time.AfterFunc(time.Duration(random.IntN(1000))*time.Millisecond, path.Clear)
		case 1:
			path.Inject(memhold.Fault{Times: 1 + random.IntN(3), CutReply: true})
		case 2:
			path.Inject(memhold.Fault{Times: 1 + random.IntN(3), Err: driver.ErrUnavailable})
		case 3:
			path.Inject(memhold.Fault{Times: 3,
				Delay: time.Duration(random.IntN(50)) * time.Millisecond})
		case 4:
			path.LoseNotices(true)
			time.AfterFunc(time.Second, func() { path.LoseNotices(false) })
		}
	}
}
