package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// K6: time in which the host is suspended counts.
func TestK6SuspendedTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := clock.Now()
		time.Sleep(2 * time.Second)
		clock.SimulateSuspend(time.Minute)
		if got, want := clock.Now().Sub(before), time.Minute+2*time.Second; got != want {
			t.Errorf("after 2 s awake and 1 min suspended the clock says %v, want %v", got, want)
		}
	})
}

func TestBubbleTimeIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			before := clock.Now()
			time.Sleep(time.Millisecond)
			if got := clock.Now().Sub(before); got != time.Millisecond {
				t.Fatalf("a millisecond of fake time is %v on the clock", got)
			}
		}
	})
}

func TestNeverGoesBack(t *testing.T) {
	last := clock.Now()
	for range 100_000 {
		now := clock.Now()
		if now < last {
			t.Fatalf("clock went back by %v", last.Sub(now))
		}
		last = now
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		clock.Now()
	}
}
