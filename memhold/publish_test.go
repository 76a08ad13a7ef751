package memhold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/memhold"
)

// Publish writes ten pages, one process at a time.
func Publish(ctx context.Context, locker *holdfast.Locker,
	write func(context.Context, holdfast.Token) error) error {
	return locker.Do(ctx, "site", func(ctx context.Context, lock *holdfast.Lock) error {
		for range 10 {
			if err := write(ctx, lock.Token()); err != nil {
				return err
			}
		}
		return nil
	})
}

// process returns a Locker as one more process on that server has it, with faults of its own.
func process(t *testing.T, memory *memhold.Backend) (*holdfast.Locker, memhold.Faults) {
	client := memory.Client()
	locker, err := holdfast.New(client) // with the options that the program gives
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close(); client.Close() })
	return locker, client.Faults()
}

func TestPublishStopsAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := process(t, memhold.New())
		pages := 0
		err := Publish(t.Context(), locker, func(ctx context.Context, _ holdfast.Token) error {
			if pages++; pages < 3 {
				return nil
			}
			faults.Lose("site") // as if somebody had deleted the key
			<-ctx.Done()        // which comes with the next renewal
			return ctx.Err()
		})
		if !errors.Is(err, holdfast.ErrLost) || pages != 3 {
			t.Errorf("%v after %d pages; want ErrLost in the third", err, pages)
		}
	})
}

func TestPublishWaitsAsLongAsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		locker, _ := process(t, memory)
		other, _ := process(t, memory)
		if _, err := other.Acquire(t.Context(), "site"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), start.Add(time.Minute))
		defer cancel()
		err := Publish(ctx, locker, nil) // nil: it must not write
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v; want the end of its context", err, time.Since(start))
		}
	})
}

// The holder is cut off. Another process goes on, and the store refuses what comes late.
func TestPublishStopsBeforeAnotherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		locker, network := process(t, memory)
		other, _ := process(t, memory)
		var store fence.Register // stands for the store, which compares tokens
		late := make(chan holdfast.Token, 1)
		go Publish(t.Context(), locker, func(ctx context.Context, token holdfast.Token) error {
			network.Freeze() // from here on no request of this process is answered
			<-ctx.Done()     // which comes before the lease ends on the server
			late <- token
			return ctx.Err()
		})
		synctest.Wait() // until that one hangs
		err := Publish(t.Context(), other, func(ctx context.Context, token holdfast.Token) error {
			if len(late) == 0 {
				t.Error("two publish at once")
			}
			return store.Do(ctx, "site", token, nil)
		})
		stale := store.Do(t.Context(), "site", <-late, nil)
		if err != nil || !errors.Is(stale, fence.ErrStale) {
			t.Errorf("%v, and a late write: %v; want none, and ErrStale", err, stale)
		}
	})
}
