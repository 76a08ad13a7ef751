package fence_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/fence"
)

func slot(n int) string { return "pool/slot-" + strconv.Itoa(n) }

// TestSlotsAreApart has a resource that three may hold at once, each in a slot with a resource of
// its own. A holder that was overtaken in its slot is refused there, and no other holder is.
func TestSlotsAreApart(t *testing.T) {
	var register fence.Register
	write := func(slot string, token fence.Token) error {
		return register.Do(t.Context(), slot, token, nil)
	}
	for overtaken := range 3 {
		for n := range 3 {
			if err := write(slot(n), fence.Token(10*overtaken+n+1)); err != nil {
				t.Errorf("slot %d: %v", n, err)
			}
		}
		if err := write(slot(overtaken), fence.Token(10*overtaken+9)); err != nil {
			t.Error(err)
		}
		for n := range 3 {
			var want error
			if n == overtaken {
				want = fence.ErrStale
			}
			if err := write(slot(n), fence.Token(10*overtaken+n+1)); !errors.Is(err, want) {
				t.Errorf("the first holder of slot %d, after slot %d was taken over: %v; want %v", n,
					overtaken, err, want)
			}
		}
	}
}

// TestSlotsNeedAResourceEach shows why: under one name the holders of other slots, who have lost
// nothing, would be refused.
func TestSlotsNeedAResourceEach(t *testing.T) {
	var register fence.Register
	if err := register.Do(t.Context(), "pool", 6, nil); err != nil { // the holder of slot 2
		t.Fatal(err)
	}
	if err := register.Do(t.Context(), "pool", 5, nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the holder of slot 1 = %v; want ErrStale", err)
	}
}

// TestSlotsDoNotWait sees that a write in one slot does not hold up those in another.
func TestSlotsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var register fence.Register
		err := register.Do(t.Context(), slot(1), 1, func(ctx context.Context) error {
			return register.Do(ctx, slot(2), 2, nil) // would wait for ever
		})
		if err != nil {
			t.Error(err)
		}
	})
}
