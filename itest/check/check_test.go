package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

var rules = check.Rules{TTL: time.Second, Guard: 2 * time.Second}

// ms is a moment of a history written by hand.
func ms(n int64) int64 { return n * int64(time.Millisecond) }

// hold is an acquisition of "k", in milliseconds: asked for, granted, valid until, and released a
// millisecond after the call of Release, if release is not 0.
func hold(client string, op int, token uint64, asked, granted, until,
	release int64) []history.Record {
	records := []history.Record{
		{Kind: history.Ask, Client: client, Op: op, Key: "k", At: ms(asked)},
		{Kind: history.Grant, Client: client, Op: op, Key: "k", At: ms(granted), Token: token,
			Until: ms(until)},
	}
	if release != 0 {
		records = append(records,
			history.Record{Kind: history.Release, Client: client, Op: op, At: ms(release)},
			history.Record{Kind: history.Released, Client: client, Op: op, At: ms(release + 1)})
	}
	return records
}

func fault(breaks string, from, to int64) history.Record {
	return history.Record{Kind: history.Fault, Name: "fault", Target: "n1", At: ms(from),
		Until: ms(to), Breaks: breaks}
}

func of(records ...any) (all []history.Record) {
	for _, r := range records {
		switch r := r.(type) {
		case history.Record:
			all = append(all, r)
		case []history.Record:
			all = append(all, r...)
		}
	}
	return all
}

// probed adds a process that acquires each key in the end, as every run of the laboratory has, for
// keys without one.
func probed(records []history.Record) []history.Record {
	last, probe := int64(0), make(map[string]bool)
	var keys []string
	for _, r := range records {
		last = max(last, r.At, r.Until)
		if r.Kind == history.Ask && strings.HasPrefix(r.Client, "probe") {
			probe[r.Key] = true
		} else if r.Kind == history.Ask && !slices.Contains(keys, r.Key) {
			keys = append(keys, r.Key)
		}
	}
	if len(keys) == 0 && len(probe) == 0 {
		keys = []string{"k"}
	}
	for i, key := range keys {
		if !probe[key] {
			records = append(records,
				history.Record{Kind: history.Ask, Client: "probe.9", Op: i + 1, Key: key,
					At: last + 1},
				history.Record{Kind: history.Grant, Client: "probe.9", Op: i + 1, Key: key,
					At: last + 2, Token: 1 << 40, Until: last + ms(1000)},
				history.Record{Kind: history.Release, Client: "probe.9", Op: i + 1, At: last + 3},
				history.Record{Kind: history.Released, Client: "probe.9", Op: i + 1, At: last + 4})
		}
	}
	return records
}

// Each check finds what it is for, and finds nothing in a correct history.
func TestChecks(t *testing.T) {
	told := func(op int, at int64) history.Record {
		return history.Record{Kind: history.Tell, Client: "a", Op: op, At: ms(at), Err: "lost"}
	}
	write := func(at int64, outcome string) history.Record {
		return history.Record{Kind: history.Write, Client: "a", Op: 1, At: ms(at),
			Until: ms(at + 1), Outcome: outcome}
	}
	until := func(deadline int64) history.Record {
		return history.Record{Kind: history.Ask, Client: "a", Op: 1, Key: "k", At: ms(1),
			Until: deadline}
	}
	refused := func(at int64) history.Record {
		return history.Record{Kind: history.Refuse, Client: "a", Op: 1, At: ms(at), Err: "timeout"}
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string // checks that find something
		excused bool
	}{
		{"one after the other",
			of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 20, 50, 101, 1090, 200)), nil, false},
		{"overtaken by a token of the same time",
			of(hold("a", 1, 20, 1, 50, 990, 60), hold("b", 1, 30, 2, 70, 1090, 80)), nil, false},
		{"after a lease that ran out", of(hold("a", 1, 10, 1, 2, 990, 0), told(1, 990),
			hold("b", 1, 20, 50, 1005, 2000, 1100)), nil, false},
		{"lost early, told, and taken by another", of(hold("a", 1, 10, 1, 2, 990, 0), told(1, 300),
			hold("b", 1, 20, 50, 301, 1200, 400)), nil, false},

		{"both valid", of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 101, 1090, 200)),
			[]string{"exclusion", "linearizability"}, false},
		{"both valid, long before the last",
			of(hold("a", 1, 10, 1, 2, 5000, 0), hold("b", 1, 20, 10, 11, 990, 12),
				hold("c", 1, 30, 2000, 2001, 2900, 2002)),
			[]string{"exclusion", "exclusion", "linearizability"}, false},
		{"both valid, after data was lost",
			served(of(hold("a", 1, 10, 1, 2, 990, 0), fault("forgot", 60, 70),
				hold("b", 1, 20, 50, 101, 1090, 200)), 1, nil),
			[]string{"exclusion", "linearizability"}, true},
		{"data was lost too early to be the reason",
			served(of(fault("forgot", 10, 20), hold("a", 1, 10, 30, 40, 990, 0),
				hold("b", 1, 20, 50, 101, 1030, 200)), 1, nil),
			[]string{"exclusion", "linearizability", "sole"}, false},

		{"token twice", of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 10, 50, 101, 1090, 200)),
			[]string{"linearizability", "tokens"}, false},
		{"token goes back",
			of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 9, 101, 102, 1090, 200)),
			[]string{"linearizability", "tokens"}, false},
		{"token goes back after data was lost",
			of(hold("a", 1, 10, 1, 2, 990, 100), fault("forgot", 101, 102),
				hold("b", 1, 9, 103, 104, 1090, 200)),
			// the first is excused, the second is not
			[]string{"linearizability", "tokens"}, false},

		{"rightful holder refused",
			of(hold("a", 1, 10, 1, 2, 990, 100), write(50, history.Refused)), []string{"register"},
			false},
		{"no answer to a write",
			of(hold("a", 1, 10, 1, 2, 990, 100), write(50, history.Unanswered)),
			[]string{"register"}, false},
		{"late writer refused", of(hold("a", 1, 10, 1, 2, 990, 0), write(995, history.Refused)),
			nil, false},

		{"told after the next grant",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				told(1, 1021)), []string{"loss"}, false},
		{"told after the next grant, as late as a process may be without a record of it",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				told(1, 1020)), nil, false},
		{"never told",
			of(hold("a", 1, 10, 1, 2, 990, 1200), hold("b", 1, 20, 50, 1005, 2000, 1100)),
			[]string{"loss"}, false},
		{"told after the next grant, being stopped",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				told(1, 1021),
				history.Record{Kind: history.Stall, Client: "a", At: ms(900), Until: ms(1009)}),
			nil,
			false},
		{"killed as soon as it was no longer stopped",
			of(hold("c3.1", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				pause("c1 c3", 900, 1019), death("c3.1", 1020)), nil, false},
		{"killed a while after it was stopped",
			of(hold("c3.1", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				pause("c1 c3", 900, 980), death("c3.1", 1021)), []string{"loss"}, false},
		{"killed when another was stopped",
			of(hold("c3.1", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
				pause("c1", 900, 1019), death("c3.1", 1021)), []string{"loss"}, false},
		{"believed in after the deadline",
			of(hold("a", 1, 10, 1, 2, 990, 0), history.Record{Kind: history.Extend, Client: "a",
				Op: 1, At: ms(1020), Until: ms(1020)},
				hold("b", 1, 20, 50, 1005, 2000, 1100)), []string{"exclusion", "linearizability"},
			false},

		{"free and wanted",
			of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 20, 50, 5000, 5990, 5100)),
			[]string{"idle"}, false},
		{"free and not wanted",
			of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 20, 4990, 5000, 5990, 5100)), nil,
			false},
		{"free and wanted in vain",
			of(hold("a", 1, 10, 1, 2, 990, 100), history.Record{Kind: history.Ask, Client: "b",
				Op: 1, Key: "k", At: ms(200)},
				history.Record{Kind: history.Refuse, Client: "b", Op: 1, At: ms(4000),
					Err: "timeout"}),
			[]string{"idle"}, false},
		{"wanted in vain, and nobody has ever had it",
			of(history.Record{Kind: history.Ask, Client: "b", Op: 1, Key: "k", At: ms(1)},
				history.Record{Kind: history.Refuse, Client: "b", Op: 1, At: ms(3002),
					Err: "timeout"}),
			[]string{"idle"}, false},
		{"wanted in vain for as long as it may take, and nobody has ever had it",
			of(history.Record{Kind: history.Ask, Client: "b", Op: 1, Key: "k", At: ms(1)},
				history.Record{Kind: history.Refuse, Client: "b", Op: 1, At: ms(3001),
					Err: "timeout"}),
			nil, false},
		{"free and wanted, but the server is down",
			of(hold("a", 1, 10, 1, 2, 990, 100), fault("", 150, 4000),
				hold("b", 1, 20, 50, 5000, 5990, 5100)), nil, false},

		{"not to be had in the end",
			of(history.Record{Kind: history.Ask, Client: "probe.1", Op: 1, Key: "k", At: ms(1)},
				history.Record{Kind: history.Refuse, Client: "probe.1", Op: 1, At: ms(9000),
					Err: "unavailable"}), []string{"liveness"}, false},
		{"Acquire does not return in time", of(until(ms(100)), refused(2101)), []string{"liveness"},
			false},
		{"Acquire returns in time", of(until(ms(100)), refused(2100)), nil, false},
		{"Acquire returns when its process goes on", of(until(ms(100)), refused(2900),
			history.Record{Kind: history.Stall, Client: "a", At: ms(90), Until: ms(1000)}), nil,
			false},
		{"Acquire never returns", of(until(ms(100)), hold("b", 1, 20, 1, 2, 990, 100),
			hold("b", 2, 30, 2500, 2501, 3400, 2600)), []string{"liveness"},
			false},
		{"Acquire never returns, as its process has ended", of(until(ms(100)),
			history.Record{Kind: history.Death, Client: "a", At: ms(500)},
			hold("b", 1, 20, 1, 2, 990, 100), hold("b", 2, 30, 2500, 2501, 3400, 2600)), nil,
			false},
		{"Release does not return in time", of(hold("a", 1, 10, 1, 2, 990, 0),
			history.Record{Kind: history.Release, Client: "a", Op: 1, At: ms(100), Until: ms(200)},
			history.Record{Kind: history.Released, Client: "a", Op: 1, At: ms(2201)}),
			[]string{"liveness"}, false},
		{"goroutines left",
			of(history.Record{Kind: history.Done, Client: "a", At: ms(1), Count: 2}),
			[]string{"leaks"}, false},
		{"closed with an error on a busy machine",
			of(history.Record{Kind: history.Done, Client: "a", At: ms(5000), Err: "broken pipe"},
				history.Record{Kind: history.Stall, Client: "lab", At: ms(4000), Until: ms(4020)}),
			nil, false},
		{"closed with an error",
			of(history.Record{Kind: history.Done, Client: "a", At: ms(1), Err: "broken pipe"}),
			[]string{"leaks"}, false},
		{"seen by the laboratory",
			of(history.Record{Kind: history.Violation, Name: "orphans", At: ms(1), Err: "lock:k"}),
			[]string{"orphans"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := check.All(history.Assemble(probed(c.records)), rules)
			var names []string
			for _, f := range found {
				names = append(names, f.Check)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) {
				t.Errorf("found %v, want %v", found, c.want)
			}
			if violations := check.Violations(found); c.excused == (len(violations) > 0) &&
				len(found) > 0 {
				t.Errorf("violations %v, want them excused: %v", violations, c.excused)
			}
		})
	}
}

// A probe that had no time to be granted anything shows nothing. It is distinguished from one that
// had time.
func TestProbeOnABusyMachine(t *testing.T) {
	for _, c := range []struct {
		name    string
		stalled int64
		open    bool
	}{{"all the time", 9000, true}, {"for a moment", 1000, false}} {
		found := check.Checks["liveness"](history.Assemble([]history.Record{
			{Kind: history.Ask, Client: "probe.1", Op: 1, Key: "k", At: ms(1)},
			{Kind: history.Stall, Client: history.Laboratory, At: ms(500),
				Until: ms(500 + c.stalled)},
			{Kind: history.Refuse, Client: "probe.1", Op: 1, At: ms(10_000), Err: "timeout"},
		}), rules)
		if len(found) != 1 || found[0].Open != c.open || found[0].Excuse != "" {
			t.Errorf("stalled %s: found %+v", c.name, found)
		}
	}
}

// Each check is in the table of another test or in a mutant. This test sees that none was
// forgotten.
func TestEveryCheckIsTested(t *testing.T) {
	var names []string
	for name := range check.Checks {
		names = append(names, name)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "),
		"acknowledged downgrades exclusion guards idle leaks linearizability liveness loss owners "+
			"permits register rising sets sole starvation tokens"; got != want {
		t.Errorf("checks %s, tested are %s", got, want)
	}
}

func pause(clients string, from, to int64) history.Record {
	return history.Record{Kind: history.Fault, Name: "pause", Target: clients, At: ms(from),
		Until: ms(to)}
}

func death(client string, at int64) history.Record {
	return history.Record{Kind: history.Death, Client: client, At: ms(at)}
}
