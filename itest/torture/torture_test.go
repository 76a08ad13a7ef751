//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/report"
)

// What was recorded of a mode is kept even if it cannot be read, and the other modes are reported.
func TestEachModeIsKept(t *testing.T) {
	s := &session{work: t.TempDir(), dir: filepath.Join(t.TempDir(), "report")}
	if err := os.Mkdir(s.place(7), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := history.Create(filepath.Join(s.place(7), "lab.jsonl"), "")
	if err != nil {
		t.Fatal(err)
	}
	log.Add(history.Record{Kind: history.Setup, Name: "what was run", TTL: 1})
	log.Close()
	if err := s.keep(7); err != nil {
		t.Fatal(err)
	}
	if run, err := history.Read(filepath.Join(s.dir, report.Archive(7))); err != nil ||
		run.Setup.Name != "what was run" {
		t.Errorf("kept %+v, %v", run, err)
	}
	if _, err := s.judge(mode{number: 7}, nil); err == nil {
		t.Error("checks that panic are no error")
	} else {
		s.fail(mode{number: 7}, err)
	}
	page, err := os.ReadFile(filepath.Join(s.dir, "torture.md"))
	if err != nil || !strings.Contains(string(page), "so nothing is known of them: 7 (") {
		t.Errorf("the report says %.2000s, %v", page, err)
	}
}

// A mode that cannot be run does not count as a mode in which nothing was found.
func TestModeThatDoesNotStartFails(t *testing.T) {
	s := &session{work: t.TempDir(), plain: "/no/such/program"}
	config := lab.Config{Nodes: 1, Persistence: lab.Memory, Faults: []string{"no such fault"}}
	if err := s.run(context.Background(), mode{config, 1}); err == nil ||
		!strings.Contains(err.Error(), "no such fault") {
		t.Errorf("a fault that there is not gives %v", err)
	}
	config.Faults = []string{"freeze"}
	if err := s.run(context.Background(), mode{config, 2}); err == nil ||
		!strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a client that can not be started gives %v", err)
	}
}

// The chosen modes share all of the time. They keep their numbers among all modes, on which their
// seeds and the names of their files depend.
func TestModesChosen(t *testing.T) {
	all := plan(time.Hour, regexp.MustCompile(""))
	if want := len(lab.Promises) + len(lab.Limits) + len(lab.Coordinators); len(all) != want {
		t.Fatalf("%d modes of %d", len(all), want)
	}
	chosen := plan(time.Hour, regexp.MustCompile("over TLS"))
	if len(chosen) == 0 || len(chosen) == len(all) {
		t.Fatalf("chosen: %v", chosen)
	}
	for _, m := range chosen {
		if !strings.Contains(m.String(), "over TLS") || m.String() != all[m.number-1].String() {
			t.Errorf("%v was chosen, and %v has its number", m, all[m.number-1])
		}
		if want := time.Hour / time.Duration(len(chosen)); m.Duration != want {
			t.Errorf("%v takes %v, not %v", m, m.Duration, want)
		}
	}
}

// What was kept is checked again. The report says of which commit it is, and of which commit the
// checks are.
func TestReportIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "lab.jsonl")
	log, err := history.Create(kept, "")
	if err != nil {
		t.Fatal(err)
	}
	log.Add(history.Record{Kind: history.Setup, Name: "what was run", TTL: 1})
	log.Add(history.Record{Kind: history.Undone, Count: 7})
	log.Close()
	modes := plan(time.Hour, regexp.MustCompile("^[12] "))
	if len(modes) != 2 {
		t.Fatalf("chosen: %v", modes)
	}
	if err := history.Archive(filepath.Join(dir, report.Archive(2)), kept); err != nil {
		t.Fatal(err)
	}
	err = judgeAgain(modes, report.Environment{Commit: "abcdef0", Seed: 5}, dir)
	if err == nil || !strings.Contains(err.Error(), "violations") ||
		!strings.Contains(err.Error(), modes[0].String()) {
		t.Errorf("a run that shows nothing, and one that was not kept, give %v", err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "torture.md"))
	for _, want := range []string{"commit abcdef0,", "checked again, by the checks of commit ",
		"7 updates would have been lost", "so nothing is known of them: " + modes[0].String()} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report does not say %q: %.2000s, %v", want, page, err)
		}
	}
}
