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

// The time of a bubble is exact, however much real time goes by in it, and moves the clock of
// nobody outside.
func TestBubbleTimeIsExact(t *testing.T) {
	outside := clock.Now()
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			start := clock.Now()
			spin(20 * time.Millisecond)
			if got := clock.Now().Sub(start); got != 0 {
				t.Errorf("without any fake time the clock moved by %v", got)
			}
			time.Sleep(time.Hour)
			if got := clock.Now().Sub(start); got != time.Hour {
				t.Errorf("an hour of fake time is %v on the clock", got)
			}
		})
	}
	if got := clock.Now().Sub(outside); got < 60*time.Millisecond || got > time.Minute {
		t.Errorf("outside of the bubbles the clock moved by %v", got)
	}
}

// spin lets real time go by, as the boot clock counts it.
func spin(d time.Duration) {
	for start := clock.SinceBoot(); clock.SinceBoot()-start < d; {
	}
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
