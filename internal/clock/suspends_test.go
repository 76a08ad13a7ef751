package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A suspend moves the wall clock against the monotonic one: then, and only then, the clock that
// counts it has to be asked.
func TestKnownSuspends(t *testing.T) {
	var s suspends
	known := func(lead, want time.Duration) {
		t.Helper()
		if slept, ok := s.known(lead); !ok || slept != want {
			t.Errorf("with a lead of %v: %v, %v; want %v", lead, slept, ok, want)
		}
	}
	unknown := func(lead time.Duration) {
		t.Helper()
		if _, ok := s.known(lead); ok {
			t.Errorf("a lead of %v is known", lead)
		}
	}
	known(0, 0)
	known(noise/2, 0)
	unknown(time.Minute)
	unknown(-time.Minute)

	if slept := s.note(time.Minute, time.Minute, 0); slept != time.Minute {
		t.Errorf("a minute's suspend counts %v", slept)
	}
	known(time.Minute+noise/2, time.Minute)
	unknown(0)

	// The wall clock was set: nothing was slept, and its new lead is known.
	if slept := s.note(time.Minute+noise/2, time.Hour, 0); slept != time.Minute {
		t.Errorf("the wall clock was set, and %v count", slept)
	}
	known(time.Hour, time.Minute)

	// Suspended time never shrinks.
	if slept := s.note(time.Second, time.Hour, 0); slept != time.Minute {
		t.Errorf("suspended time shrank to %v", slept)
	}
}

// What note has returned is known from then on: else the clock would go back.
func TestShortSuspendIsKnown(t *testing.T) {
	var s suspends
	slept := s.note(2*noise, time.Hour, 0)
	if known, ok := s.known(time.Hour); !ok || slept != 2*noise || known != slept {
		t.Errorf("noted %v, known are %v, %v; want %v", slept, known, ok, 2*noise)
	}
}

// In a bubble no suspend of the host counts, also if the wall clock has moved since the process
// began.
func TestBubbleKnowsNoSuspend(t *testing.T) {
	defer host.lead.Store(host.lead.Load())
	host.lead.Store(int64(time.Hour))
	synctest.Test(t, func(t *testing.T) {
		start := Now()
		for range 2 {
			if now, looked := Now(), Look(); now != start || looked != start {
				t.Errorf("without any fake time the clock moved by %v and %v", now.Sub(start),
					looked.Sub(start))
			}
			host.lead.Store(0)
		}
	})
}

// A goroutine that did not run between the two readings sees too little of a suspend. That counts,
// but nobody relies on it: the next reading asks again.
func TestSlowReadingIsNotKnown(t *testing.T) {
	var s suspends
	const missed = 20 * time.Millisecond
	if slept := s.note(time.Minute-missed, time.Minute, missed); slept != time.Minute-missed {
		t.Errorf("counted %v", slept)
	}
	if _, ok := s.known(time.Minute); ok {
		t.Error("a reading that took long is relied on")
	}
	if slept := s.note(time.Minute, time.Minute, noise/2); slept != time.Minute {
		t.Errorf("counted %v, want all of the suspend", slept)
	}
	if _, ok := s.known(time.Minute); !ok {
		t.Error("a reading that took no time is not relied on")
	}
}

// A delay between the readings of the two clocks does not count as suspended time.
func TestDelayedReadingCountsNothing(t *testing.T) {
	defer func() { readBoot = sinceBoot }()
	readBoot = func() time.Duration {
		for start := sinceBoot(); sinceBoot()-start < 10*noise; {
		}
		return sinceBoot()
	}
	Look()
	before := host.counted.Load()
	for range 10 {
		Look()
	}
	if counted := host.counted.Load() - before; counted > int64(noise) {
		t.Errorf("%v of delays count as suspended", time.Duration(counted))
	}
}

// A suspend that the wall clock does not show is noticed by Look, and then by all.
func TestLookNoticesHiddenSuspends(t *testing.T) {
	before := Now()
	SimulateHiddenSuspend(time.Hour)
	if passed := Look().Sub(before); passed < time.Hour {
		t.Errorf("an hour of suspended time counts %v", passed)
	}
	if passed := Now().Sub(before); passed < time.Hour {
		t.Errorf("Look has noticed an hour, Now counts %v", passed)
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		Look()
	}
}
