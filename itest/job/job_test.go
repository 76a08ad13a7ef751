package job_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/itest/job"
)

// first returns what the first turns of a goroutine draw. Each turn draws more besides.
func first(j job.Job, goroutine, more int) (drawn []uint64) {
	next := j.Turns(goroutine)
	for range 20 {
		turn := next()
		drawn = append(drawn, turn.Uint64())
		for range more {
			turn.Uint64()
		}
	}
	return drawn
}

// Clients that all drew the same would ask for the same keys in the same order, and contend in
// lockstep. A seed repeats what a run has drawn, however long each turn took.
func TestTurnsAreOfOneClient(t *testing.T) {
	base := job.Job{Seed: 7, Client: "c1.1"}
	want := first(base, 0, 0)
	if again := first(base, 0, 3); !slices.Equal(again, want) {
		t.Errorf("the same seed draws %v, and then %v", want, again)
	}
	for name, other := range map[string][]uint64{
		"another client":           first(job.Job{Seed: 7, Client: "c2.1"}, 0, 0),
		"another process of it":    first(job.Job{Seed: 7, Client: "c1.2"}, 0, 0),
		"another goroutine":        first(base, 1, 0),
		"another run":              first(job.Job{Seed: 8, Client: "c1.1"}, 0, 0),
		"the run of the next mode": first(job.Job{Seed: 8, Client: "c2.1"}, 0, 0),
	} {
		for _, drawn := range other {
			if slices.Contains(want, drawn) {
				t.Errorf("%s draws %d, too", name, drawn)
			}
		}
	}
}
