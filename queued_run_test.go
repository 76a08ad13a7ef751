package holdfast_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// If the process had to wait at the backend for a key, the run ends with a release and without a
// question, so those who wait there have the key one round trip earlier. If the key was free, the
// run ends with the question.
func TestQueuedRunPassesTheKeyOnUnasked(t *testing.T) {
	for _, lostNotices := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const span = holdfast.DefaultCohortSpan
			b := newBench(t)
			l, backend := b.tapped()
			backend.Faults().LoseNotices(lostNotices)
			other, _ := b.locker()
			theirs := b.acquire(other, "key")
			ours := []chan *holdfast.Lock{next(l, background), next(l, background),
				next(l, background)}
			b.release(theirs)
			lock := <-ours[0]
			again := next(other, background)
			time.Sleep(span - time.Millisecond)
			renewals, releases := backend.renewals.Load(), backend.releases.Load()
			b.release(lock)
			lock = <-ours[1] // within the run
			time.Sleep(time.Millisecond)
			b.release(lock)
			synctest.Wait()
			if len(again) != 1 {
				t.Error("the other process does not have the key")
			}
			if n := backend.renewals.Load() - renewals; n != 0 {
				t.Errorf("%d questions before the key was passed on, want none", n)
			}
			if n := backend.releases.Load() - releases; n != 1 {
				t.Errorf("%d releases, want 1", n)
			}
			b.release(<-again)
			b.release(<-ours[2])

			// Nobody else waits any more.
			lock = b.acquire(l, "key")
			ours[0] = next(l, background)
			time.Sleep(span)
			renewals, releases = backend.renewals.Load(), backend.releases.Load()
			b.release(lock)
			lock = <-ours[0]
			if r, x := backend.renewals.Load()-renewals, backend.releases.Load()-releases; r != 1 ||
				x != 0 {
				t.Errorf("%d questions and %d releases at the end of a run that nobody waits for; "+
					"want 1 and none", r, x)
			}
			b.release(lock)
		})
	}
}

// Readers that had to queue ask after half the span whether somebody waits. Once nobody did, they
// ask after a whole span.
func TestReadersThatQueuedAskAfterHalfTheSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = holdfast.DefaultCohortSpan
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		writer := b.acquire(other, "key")
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- b.read(l) }()
		time.Sleep(time.Second)
		b.release(writer)
		locks := []*holdfast.Lock{<-got}
		asks := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			before := backend.renewals.Load()
			locks = append(locks, b.read(l))
			if n := backend.renewals.Load() - before; n != want {
				t.Errorf("%d questions, want %d", n, want)
			}
		}
		asks(span/2-time.Millisecond, 0)
		asks(time.Millisecond, 1)
		asks(span-time.Millisecond, 0)
		asks(time.Millisecond, 1)
		for _, lock := range locks {
			b.release(lock)
		}
	})
}
