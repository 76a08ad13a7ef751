package holdfast

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// holdUnrenewed acquires a key on a lease that is not renewed.
func holdUnrenewed(t *testing.T, l *Locker, key string, ttl time.Duration) *Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key, WithTTL(ttl), WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// endsInTime checks that the holder is told at the deadline, before others can have the key.
func endsInTime(t *testing.T, lock *Lock) {
	t.Helper()
	deadline := lock.Deadline()
	<-lock.Done()
	if late := time.Since(deadline); late > 0 {
		t.Errorf("the holder of %q was told %v after its deadline, want no later", lock.Key(), late)
	}
}

// The watchdog looks at a lease that is shorter than its own pace, the first one too.
func TestShortLeasesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(memhold.New())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		endsInTime(t, holdUnrenewed(t, l, "first", 20*time.Millisecond))
		long := holdUnrenewed(t, l, "long", time.Hour)
		// Not at the moment in which the watchdog looks anyway.
		time.Sleep(time.Second + suspendCheck/2)
		endsInTime(t, holdUnrenewed(t, l, "second", 20*time.Millisecond))
		if err := long.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While the watchdog looks after one lease, another comes due: not by the reading of the clock that
// they share. It is looked after next.
func TestLeaseThatComesDueMeanwhileIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(memhold.New())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		first := holdUnrenewed(t, l, "first", 100*time.Millisecond)
		s, other := first.cohort.shard, "second"
		for l.shard(other) == s {
			other += "+" // another mutex
		}
		second := holdUnrenewed(t, l, other, 110*time.Millisecond)
		ahead := time.Until(first.Deadline())
		time.Sleep(ahead - 1)
		s.mu.Lock()
		time.Sleep(time.Nanosecond)
		stacks := make([]byte, 1<<20)
		examine := runtime.FuncForPC(reflect.ValueOf((*watchdog).examine).Pointer()).Name()
		for !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(examine)) {
			runtime.Gosched()
		}
		clock.SimulateSuspend(50 * time.Millisecond)
		s.mu.Unlock()
		select {
		case <-second.Done():
		case <-time.After(time.Minute):
			t.Error("the holder of a lease was not told of its end")
		}
	})
}
