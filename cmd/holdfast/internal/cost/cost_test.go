package cost_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cost"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// TestAt: a percentile is the smallest value that so many of the values do not exceed.
func TestAt(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, test := range []struct {
		took  []time.Duration
		share float64
		want  time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100},
		{hundred[:1], 0.5, 1}, {hundred[:1], 0.99, 1}, {hundred[:3], 0.5, 2}, {hundred[:4], 0.5, 2},
	} {
		if got := (cost.Sample{Took: test.took}).At(test.share); got != test.want {
			t.Errorf("%v of %d: %d, want %d", test.share, len(test.took), got, test.want)
		}
	}
}

// slow is a backend whose calls take a time each. It notes what they are for.
type slow struct {
	*memhold.Backend
	takes time.Duration

	mu   *sync.Mutex
	keys map[string]int
}

func (s slow) note(key string) {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key]++
}

func (s slow) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	s.note(key)
	return s.Backend.Inspect(ctx, key)
}

func (s slow) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	s.note(c.Key)
	return s.Backend.Acquire(ctx, c)
}

func (s slow) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	s.note(c.Key)
	return s.Backend.Release(ctx, c)
}

// two returns two clients of a backend in memory.
func two(b *memhold.Backend, takes time.Duration) ([2]driver.Backend, map[string]int) {
	keys, mu := make(map[string]int), new(sync.Mutex)
	return [2]driver.Backend{slow{b.Client(), takes, mu, keys}, slow{b.Client(), takes, mu, keys}},
		keys
}

// TestMeasure: a pair takes two round trips, and a handoff one until the next one has the lock. The
// count and the time bound the measurement. Its keys have names of their own, and nothing is left
// of them.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			o           cost.Options
			least, most int
		}{
			{cost.Options{Count: 7, Time: time.Hour}, 7, 7},
			{cost.Options{Count: 100, Time: 30 * time.Millisecond}, 2, 10},
			{cost.Options{Count: 100, Time: 1}, 1, 1},
		} {
			b := memhold.New()
			backends, keys := two(b, time.Millisecond)
			test.o.Prefix, test.o.Patience = "p/", time.Minute
			samples, err := cost.Measure(t.Context(), backends, test.o)
			if err != nil || len(samples) != 3 {
				t.Fatal(samples, err)
			}
			for _, s := range samples {
				if n := len(s.Took); n < test.least || n > test.most || n != len(samples[0].Took) {
					t.Errorf("%s: %d times; %+v", s.What, n, test)
				}
				if !slices.IsSorted(s.Took) {
					t.Errorf("%s: not in order", s.What)
				}
			}
			if trip, pair := samples[0].At(1), samples[1].At(1); trip != time.Millisecond ||
				pair != 2*time.Millisecond {
				t.Errorf("a round trip takes %v, and a pair %v", trip, pair)
			}
			if got := samples[1].Row(samples[0]); !slices.Equal(got, []string{"pair", "2ms", "2ms",
				"2ms", got[4], "2.0"}) {
				t.Errorf("shown as %q", got)
			}
			for key := range keys {
				if !strings.HasPrefix(key, "p/holdfast-bench/") || len(key) < 40 {
					t.Errorf("uses %q", key)
				}
			}
			for e := range b.List(t.Context(), "") {
				t.Errorf("left behind: %q", e.Key)
			}
			b.Close()
		}
	})
}

// TestMeasureFails: the error says what failed, a call that hangs is given up, and the end of the
// context ends the measurement, which leaves nothing.
func TestMeasureFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("ended")
		b := memhold.New()
		defer b.Close()
		backends, _ := two(b, time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Second, func() { cancel(ended) })
		o := cost.Options{Count: 20, Time: time.Hour, Patience: time.Minute}
		if samples, err := cost.Measure(ctx, backends, o); !errors.Is(err, ended) ||
			samples != nil {
			t.Errorf("ended: %v, %v", samples, err)
		}
		for e := range b.List(t.Context(), "") {
			t.Errorf("left behind: %q", e.Key)
		}
		backends, _ = two(b, 5*time.Second)
		o.Patience = 500 * time.Millisecond
		begin := time.Now()
		if _, err := cost.Measure(t.Context(), backends, o); err == nil ||
			!strings.Contains(err.Error(), "round trip: no answer within 500ms") {
			t.Errorf("of a slow backend: %v", err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("of a slow backend: took %v", took)
		}
		time.Sleep(time.Minute) // the call that was given up ends
	})
}

// TestJSON: a line can be read, with times in microseconds.
func TestJSON(t *testing.T) {
	s := cost.Sample{What: "pair", Took: []time.Duration{1500, 2 * time.Microsecond,
		time.Millisecond}}
	trip := cost.Sample{Took: []time.Duration{500}}
	var got map[string]any
	if err := json.Unmarshal(s.JSON(trip), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"what": "pair", "times": 3.0, "p50_us": 2.0,
		"p99_us": 1000.0, "max_us": 1000.0, "trips": 4.0} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	// A clock that does not show the time of a round trip gives no comparison.
	if row := s.Row(cost.Sample{Took: []time.Duration{0}}); row[5] != "0.0" {
		t.Errorf("shown as %q", row)
	}
}
