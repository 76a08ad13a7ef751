package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommitsAreComparedRoundByRound(t *testing.T) {
	r := func(driver string, rate, allocs float64) *scenarioReport {
		return &scenarioReport{Name: "latency",
			Metrics: []metric{{"pairs", "/s", 1, 0}, {"allocs", "/pair", -1, 1},
				{"p99", "us", -1, 1}},
			Drivers: []*driverReport{{Name: driver,
				Metrics: map[string]*metricReport{"pairs": {Median: rate},
					"allocs": {Median: allocs}, "p99": {Median: 1}}}}}
	}
	var all turns
	// The second round was slow for both.
	for _, round := range [][2]float64{{100, 96}, {10, 9.6}, {100, 150}} {
		all.pairUp(r(ours, round[0], 10), r(ours, round[1], 10.2))
	}
	all.pairUp(r(floor, 100, 10), r(floor, 50, 10))
	all.pairUp(nil, r(ours, 1, 1)) // failed at one commit
	all.pairUp(r("another", 1, 1), r(ours, 1, 1))

	var out bytes.Buffer
	printComparisons(&out, all.rows)
	for _, want := range []string{
		"latency   holdfast  pairs /s      100     96     0.960  0.960  1.500     +4.0 %",
		"latency   holdfast  allocs /pair  10.0    10.2   1.020  1.020  1.020     +2.0 %",
		"latency   floor     pairs /s      100     50     0.500",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "p99") {
		t.Errorf("what says little is told:\n%s", &out)
	}
	err := losses(all.rows)
	if err == nil ||
		!strings.Contains(err.Error(),
			"latency, holdfast: pairs is worse by 4.0 %, more than 3 %") ||
		strings.Count(err.Error(), "worse") != 1 {
		t.Errorf(
			"losses: %v; want that of pairs alone: allocations are within the limit, and the floor is the same code",
			err)
	}
}

func TestCommitThatIsNotThere(t *testing.T) {
	err := run(t.Context(), []string{"-smoke", "-before", "no-such-commit"}, new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), `commit "no-such-commit"`) {
		t.Errorf("error %v, want one that names the commit", err)
	}
}
