package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// madeUp writes the results of an invented run and returns the file.
func madeUp(t *testing.T, dir string) string {
	t.Helper()
	value := func(v float64) map[string]*metricReport {
		return map[string]*metricReport{"p50": {Median: v, Min: v / 2, Max: v * 2,
			Rounds: []float64{v / 2, v, v * 2}}}
	}
	yes, no, one := true, false, 1.0
	r := &report{Plan: "quick", Rounds: 3, Redis: "7", Scenarios: []*scenarioReport{{
		Name: "latency", Title: "a title", Floor: floor, Metrics: []metric{{"p50", "us", -1, 1}},
		Drivers: []*driverReport{{Name: ours, Metrics: value(20)},
			{Name: floor, Metrics: value(10)}, {Name: advisory, Metrics: value(15)},
			{Name: redisLock, Metrics: value(19.9)}, {Name: etcdMutex, Error: "broken\nfor good"}},
		Goals: []*goalReport{{Goal: "p50 at most 1.15 x the floor", Value: &one, Reached: &no},
			{Goal: "another", Value: &one, Reached: &yes}, {Goal: "a third"}},
	}, {
		Name: "crowd-100", Title: "waiters", Metrics: []metric{{"commands", "/lock", -1, 1}},
		Drivers: []*driverReport{{Name: ours,
			Metrics: map[string]*metricReport{"commands": {Median: 1}}}},
	}}}
	file := filepath.Join(dir, "results.json")
	if err := writeJSON(file, r); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestResultsBecomeADocument(t *testing.T) {
	dir := t.TempDir()
	results, document := madeUp(t, dir), filepath.Join(dir, "docs", "text.md")
	pictures := filepath.Join(dir, "docs", "pictures")
	if err := os.Mkdir(filepath.Dir(document), 0o755); err != nil {
		t.Fatal(err)
	}
	const before, after = "# Words before\n\n", "\n\nWords after.\n"
	if err := os.WriteFile(document, []byte(before+measuredBegins+"\nold\n"+measuredEnds+after),
		0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the part is there already
		if err := run(t.Context(), []string{"-from", results, "-plots", pictures, "-markdown",
			document}, new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) ||
		strings.Contains(text, "\nold\n") || strings.Count(text, measuredBegins) != 1 {
		t.Errorf("what stands around the generated part has changed:\n%s", text)
	}
	for _, want := range []string{
		"| postgres | 1.33 x |",
		"| p50 at most 1.15 x the floor | 1 |",
		"![One server, one goroutine: acquire and release, p50](pictures/latency.svg)",
		"(pictures/waiters.svg)",
		"| holdfast | 20.0 | 10.0 .. 40.0 |",
		"- etcd failed: broken for good",
		"- **not reached**: p50 at most",
		"- reached: another",
		"- not measured: a third",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	// A library that is ahead by less than the difference between runs does not count, and neither
	// does a floor.
	for _, unwanted := range []string{"| redislock | 1.0", "| floor | 2.00 x"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q is there:\n%s", unwanted, text)
		}
	}
	checkPicture(t, filepath.Join(pictures, "latency.svg"))
	checkPicture(t, filepath.Join(pictures, "waiters.svg"))
	if _, err := os.Stat(filepath.Join(pictures, "work.svg")); !os.IsNotExist(err) {
		t.Errorf("a picture of what was not measured: %v", err)
	}
}

// checkPicture checks that a picture is XML and names Holdfast.
func checkPicture(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(bytes.NewReader(data)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if !bytes.Contains(data, []byte(ours)) {
		t.Errorf("%s does not name %s", file, ours)
	}
}

func TestDocumentWithoutAnEndIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	document := filepath.Join(dir, "text.md")
	const text = measuredBegins + "\nwords that somebody wrote\n"
	if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-from", madeUp(t, dir), "-markdown", document},
		new(bytes.Buffer)); err == nil {
		t.Error("nobody is told that the end is missing")
	}
	if data, err := os.ReadFile(document); err != nil || string(data) != text {
		t.Errorf("it was changed, %v:\n%s", err, data)
	}
}

func TestChartsAreOfWhatIsMeasured(t *testing.T) {
	metrics := make(map[string][]metric)
	for _, s := range allScenarios(fullPlan) {
		metrics[s.name] = s.metrics
	}
	for _, c := range charts {
		for _, name := range c.scenarios {
			found := false
			for scenario, all := range metrics {
				if scenario == name || c.curve && strings.HasPrefix(scenario, name) {
					for _, m := range all {
						found = found || m.Name == c.metric
					}
				}
			}
			if !found {
				t.Errorf("%s: there is no %s in %s", c.file, c.metric, name)
			}
		}
	}
}

func TestRunsAreComparedByTheOrderOfDrivers(t *testing.T) {
	run := func(a, b, c float64) *report {
		s := &scenarioReport{Name: "latency", Metrics: []metric{{"p50", "us", -1, 1}}}
		for name, v := range map[string]float64{"a": a, "b": b, "c": c} {
			s.Drivers = append(s.Drivers,
				&driverReport{Name: name,
					Metrics: map[string]*metricReport{"p50": {Median: v, Rounds: []float64{v}}}})
		}
		return &report{Scenarios: []*scenarioReport{s}}
	}
	for _, c := range []struct {
		other *report
		want  string
	}{
		{run(10, 20, 30), "3 pairs of drivers, 0 in another order"},
		{run(20, 10, 30), "3 pairs of drivers, 1 in another order"},
		// in the first run these were far apart
		{run(10, 31, 30), "3 pairs of drivers, 1 in another order"},
		{&report{}, "latency: only in one of the runs"},
	} {
		var out bytes.Buffer
		run(10, 20, 30).compare(c.other, &out)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%q is missing:\n%s", c.want, &out)
		}
	}
	var out bytes.Buffer
	run(10, 10.5, 30).compare(run(10.5, 10, 30), &out)
	if !strings.Contains(out.String(), "3 pairs of drivers, 0 in another order") {
		t.Errorf("what is about the same in both is told:\n%s", &out)
	}
}
