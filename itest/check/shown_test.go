package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// minute is how long clients were at work in the records of this file, in milliseconds.
const minute = int64(time.Minute / time.Millisecond)

// whole returns a run of two clients on three servers, in which nothing is missing.
func whole() []history.Record {
	mark := func(name string, from int64) history.Record {
		return history.Record{Kind: history.Mark, Name: name, At: ms(from)}
	}
	plan := func(name, target string) history.Record {
		return history.Record{Kind: history.Plan, Name: name, Target: target, Count: 2, At: ms(1)}
	}
	came := func(name string, from int64) history.Record {
		return with(on("n1", "", from, from+10), func(f *history.Record) { f.Drawn = name })
	}
	all := of(
		history.Record{Kind: history.Setup, At: ms(1), TTL: ms(1000), Guard: ms(2000), Count: 3,
			Clients: 2},
		mark(history.Tormented, 1), mark(history.Calm, minute),
		mark(history.Probed, minute+10_000), mark(history.Closed, minute+11_000),
		mark(history.Ended, minute+12_000),
		plan("freeze", "servers"), plan("restart", "servers"), plan("pause", "clients"),
		came("freeze", 2000), came("restart", 3000), came("pause", 4000))
	for i, client := range []string{"c1.1", "c2.4"} {
		from := int64(1000 * i)
		all = append(all, hold(client, 1, uint64(10+10*i), from+1, from+10, from+900, from+20)...)
		all = append(all, history.Record{Kind: history.Write, Client: client, Op: 1,
			At: ms(from + 11), Until: ms(from + 12), Outcome: history.Accepted})
		all = append(all, hold(client, 2, uint64(30+i), minute+from+4000, minute+from+4001,
			minute+from+4900, minute+from+4002)...)
		for _, target := range []string{"n1", "n2", "all"} {
			all = append(all, with(said(history.Acquire, target, client, uint64(10+10*i), from+2,
				from+3), func(c *history.Record) { c.Client = client }))
		}
	}
	return probed(all)
}

// without leaves out the records that match, of which there has to be one.
func without(t *testing.T, match func(history.Record) bool) []history.Record {
	t.Helper()
	all := whole()
	rest := slices.DeleteFunc(slices.Clone(all), match)
	if len(rest) == len(all) {
		t.Error("there was nothing to leave out")
	}
	return rest
}

// changed changes each record.
func changed(change func(*history.Record)) []history.Record {
	all := whole()
	for i := range all {
		change(&all[i])
	}
	return all
}

// A run in which something is missing is no proof, even if no check has found anything.
func TestRunHasToShowSomething(t *testing.T) {
	leave := func(match func(history.Record) bool) []history.Record { return without(t, match) }
	mark := func(name string) []history.Record {
		return leave(func(r history.Record) bool {
			return r.Kind == history.Mark && r.Name == name
		})
	}
	busy := func(client string, until int64) []history.Record {
		all := whole()
		for at := int64(5000); at < until; at += 200 {
			all = append(all, history.Record{Kind: history.Stall, Client: client, At: ms(at),
				Until: ms(at + 20)})
		}
		return all
	}
	drawn := func(change func(*history.Record)) []history.Record {
		return changed(func(r *history.Record) {
			r.Sharing = r.Kind == history.Setup
			change(r)
		})
	}
	lasted := func(at int64) []history.Record {
		return changed(func(r *history.Record) {
			if r.Kind == history.Mark && r.Name == history.Calm {
				r.At = ms(at)
			}
			if r.Drawn == "restart" {
				r.Drawn = "freeze"
			}
		})
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    bool
	}{
		{"everything", whole(), false},
		{"what was run", leave(func(r history.Record) bool {
			return r.Kind == history.Setup
		}), true},
		{"the faults", mark(history.Tormented), true},
		{"the calm", mark(history.Calm), true},
		{"the probes", mark(history.Probed), true},
		{"the end of clients", mark(history.Closed), true},
		{"the end", mark(history.Ended), true},
		{"a client", leave(func(r history.Record) bool { return r.Client == "c2.4" }), true},
		{"a client's locks", leave(func(r history.Record) bool {
			return r.Client == "c2.4" && (r.Kind == history.Grant || r.Kind == history.Release ||
				r.Kind == history.Released || r.Kind == history.Write)
		}), true},
		{"a client's writes", leave(func(r history.Record) bool {
			return r.Client == "c2.4" && r.Kind == history.Write
		}), true},
		{"a client's calls", leave(func(r history.Record) bool {
			return r.Client == "c2.4" && r.Kind == history.Call
		}), true},
		{"a client's calls of all servers", leave(func(r history.Record) bool {
			return r.Client == "c2.4" && r.Kind == history.Call && r.Target == "all"
		}), true},
		{"all faults of clients", leave(func(r history.Record) bool {
			return r.Drawn == "pause"
		}), true},
		{"a kind of fault", lasted(40_001), true},
		{"a kind of fault, and the time for it", lasted(39_999), false},
		{"the promise that assumptions hold", changed(func(r *history.Record) {
			if r.Drawn == "restart" {
				r.Breaks = "forgot"
			}
		}), true},
		{"that promise where it is not given", changed(func(r *history.Record) {
			r.Limits = r.Kind == history.Setup
			if r.Drawn == "restart" {
				r.Breaks = "forgot"
			}
		}), false},
		{"time without a fault", append(whole(), on("n1", "", 10_000, minute+3000)), true},
		{"time without a fault, but enough is left",
			append(whole(), on("n1", "", 10_000, minute+1000)), false},
		{"time in which the machine was not too busy", busy(history.Laboratory, minute+8000), true},
		{"such a time, but enough is left", busy(history.Laboratory, minute+6000), false},
		{"such a time of somebody else", busy("c9.9", minute+8000), false},
		{"readers", drawn(func(*history.Record) {}), true},
		{"one who is downgraded", drawn(func(r *history.Record) {
			r.Shared = r.Kind == history.Ask
		}), true},
		{"a set", changed(func(r *history.Record) {
			if r.Kind == history.Setup {
				r.Set = 1
			}
		}), true},
	} {
		found := check.Recorded(history.Assemble(c.records))
		seen := slices.ContainsFunc(found, func(f check.Finding) bool {
			return f.Check == "shown" && f.Excuse == ""
		})
		if seen != c.want || !c.want && len(found) > 0 {
			t.Errorf("without %s: found %v", c.name, found)
		}
	}
}

// A fault that left no time is the laboratory's. A machine that did not is nobody's.
func TestRunOnABusyMachineIsOpen(t *testing.T) {
	stalled := whole()
	for at := int64(5000); at < minute+8000; at += 200 {
		stalled = append(stalled, history.Record{Kind: history.Stall,
			Client: history.Laboratory, At: ms(at), Until: ms(at + 20)})
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		open    bool
	}{
		{"stalls", stalled, true},
		{"a fault", append(whole(), on("n1", "", 10_000, minute+3000)), false},
		{"both", append(stalled, on("n1", "", 10_000, minute+3000)), false},
	} {
		found := check.Recorded(history.Assemble(c.records))
		if len(found) != 1 || found[0].Check != "shown" || found[0].Open != c.open {
			t.Errorf("%s: found %+v, want one finding, open: %t", c.name, found, c.open)
		}
	}
}

// Permits have to be granted to clients that know different numbers of them.
func TestRunHasToShowPermits(t *testing.T) {
	for _, c := range []struct {
		clients int
		granted []int // to clients that know so many permits
		want    bool
	}{{4, nil, true}, {4, []int{3, 3}, true}, {4, []int{3, 2}, false}, {2, nil, true},
		{2, []int{3}, false}} {
		all := append(probing(3), history.Record{Kind: history.Setup, At: ms(1), TTL: ms(1000),
			Clients: c.clients, Permits: 3})
		for i, number := range c.granted {
			all = append(all, permit(number, i, hold("a", i+1, 10, 1, 2, 990, 100))...)
		}
		found := check.Recorded(history.Assemble(all))
		if got := slices.ContainsFunc(found, func(f check.Finding) bool {
			return f.Check == "shown" && strings.Contains(f.Text, "permits were granted")
		}); got != c.want {
			t.Errorf("%d clients, granted to those that know %d: found %v", c.clients, c.granted,
				found)
		}
	}
}

// A client that does not recover from the faults is found, even if others have the keys meanwhile,
// unless the machine did not let it run.
func TestClientThatDoesNotRecover(t *testing.T) {
	for name, stalls := range map[string][][2]int64{
		"never": nil, "for long": {{4000, 8500}}, "for a moment": {{4000, 4050}},
		"again and again": {{4000, 4050}, {6000, 6050}, {8000, 8050}, {9500, 9550}},
	} {
		records := without(t, func(r history.Record) bool {
			return r.Client == "c2.4" && r.Op == 2
		})
		records = append(records, history.Record{Kind: history.Ask, Client: "c2.5", Op: 1, Key: "k",
			At: ms(minute + 5000)}, history.Record{Kind: history.Refuse, Client: "c2.5", Op: 1,
			At: ms(minute + 5010), Err: "unavailable"})
		for _, s := range stalls {
			records = append(records, history.Record{Kind: history.Stall, Client: "c2.5",
				At: ms(minute + s[0]), Until: ms(minute + s[1])})
		}
		var names []string
		for _, f := range check.Recorded(history.Assemble(records)) {
			names = append(names, f.Check)
		}
		var want []string
		if name == "never" || name == "for a moment" {
			want = []string{"liveness"}
		}
		if !slices.Equal(names, want) {
			t.Errorf("stalled %s: found %q, want %q", name, names, want)
		}
	}
}

// A store may be slow at times on a busy machine. One that often is has shown nothing.
func TestStoreThatMostlyFails(t *testing.T) {
	for _, failures := range []int{1, 2} {
		all := whole()
		for i := range int64(10 * failures) {
			r := history.Record{Kind: history.Enter, Client: "c1.1", Op: 1, Name: "file",
				At: ms(100 + i), Until: ms(5000 + i), Outcome: history.Accepted}
			if i < int64(failures) || i == 19 {
				r.Outcome, r.Err = history.Failed, "busy"
			}
			all = append(all, r)
		}
		all = append(all, history.Record{Kind: history.Final, Name: "file", Key: "k",
			At: ms(minute + 11_500)})
		violations := check.Violations(check.Recorded(history.Assemble(all)))
		if (len(violations) > 0) != (failures == 2) {
			t.Errorf("%d failures: %v", failures, violations)
		}
	}
}

// What a run could show is counted.
func TestWatched(t *testing.T) {
	all := append(whole(), asking("c1.1", 9, "k", minute+1000, minute+4002)...) // judged
	all = append(all, asking("c1.1", 10, "k", minute+1000, minute+4000)...)     // too short
	all = append(all, asking("c1.1", 11, "k", 3000, 9000)...)                   // disturbed
	all = append(all, part(3, "k", asking("c1.1", 12, "k", minute, minute+9000))...)
	// disturbed, too
	all = append(all, permit(2, 0, hold("c1.1", 14, 50, 3000, 9000, 9900, 9100))...)
	all = append(all, asking("probe.1", 1, "k", minute+10_001, minute+19_000)...)
	all = append(all, history.Record{Kind: history.Stall, Client: history.Laboratory,
		At: ms(minute - 100), Until: ms(minute - 50)})
	run := history.Assemble(all)
	// The last fault is over at 4010, and its aftermath at 9010. The stall and its aftermath take
	// 300 ms.
	want := check.Watch{Unbroken: time.Duration(ms(minute + 10_000 - 9010)),
		Undisturbed: time.Duration(ms(minute + 10_000 - 9010 - 300)), Waits: 1, Probes: 2,
		Granted: 1}
	if got := check.Watched(run, run.Mark(history.Probed)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Unbroken -= time.Duration(ms(1000))
	want.Undisturbed -= time.Duration(ms(1000))
	if got := check.Watched(run, ms(minute+9000)); got != want {
		t.Errorf("a second before: got %+v, want %+v", got, want)
	}
}

func TestAbsentFaults(t *testing.T) {
	run := history.Assemble(without(t, func(r history.Record) bool { return r.Drawn == "restart" }))
	if got, want := check.Absent(run), []string{"restart"}; !slices.Equal(got, want) {
		t.Errorf("absent are %q, want %q", got, want)
	}
}
