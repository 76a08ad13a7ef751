package check_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// shared makes an acquisition share its key.
func shared(records []history.Record) []history.Record {
	for i := range records {
		records[i].Shared = records[i].Kind == history.Ask
	}
	return records
}

// lower returns a call of Downgrade of a's first acquisition, confirmed at once.
func lower(from, to int64) []history.Record {
	return of(history.Record{Kind: history.Lower, Client: "a", Op: 1, At: ms(from)},
		history.Record{Kind: history.Lowered, Client: "a", Op: 1, At: ms(to)},
		confirmed(from, to))
}

// confirmed returns the renewal from which on a server shares the key.
func confirmed(from, to int64) history.Record {
	return history.Record{Kind: history.Call, Name: history.Renew, Target: "n1", Client: "a",
		Key: "k", Owner: "a", Shared: true, Outcome: "held", At: ms(from), Until: ms(to),
		TTL: ms(1000)}
}

// looked returns a read of a's first acquisition.
func looked(at int64, outcome string, value uint64) history.Record {
	return history.Record{Kind: history.Look, Client: "a", Op: 1, At: ms(at), Until: ms(at + 1),
		Outcome: outcome, Value: value}
}

// Readers may overlap readers, and nobody else may.
func TestChecksOfSharedKeys(t *testing.T) {
	wrote := func(client string, at int64, outcome string, value uint64) history.Record {
		r := looked(at, outcome, value)
		r.Kind, r.Client = history.Write, client
		return r
	}
	told := history.Record{Kind: history.Tell, Client: "a", Op: 1, At: ms(1021), Err: "lost"}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string // checks that find something
	}{
		{"two readers", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			shared(hold("b", 1, 20, 3, 4, 990, 200))), nil},
		{"two readers, the later with the smaller token",
			of(shared(hold("a", 1, 20, 1, 2, 990, 100)), shared(hold("b", 1, 10, 3, 4, 990, 200))),
			nil},
		{"two readers with one token", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			shared(hold("b", 1, 10, 3, 4, 990, 200))), nil},
		{"a writer with the token of a reader before", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			hold("b", 1, 10, 3, 102, 990, 200)), []string{"linearizability", "tokens"}},
		{"a reader with the token of a writer before", of(hold("a", 1, 10, 1, 2, 990, 100),
			shared(hold("b", 1, 10, 3, 102, 990, 200))), []string{"linearizability", "tokens"}},
		{"two readers with the token of a writer before",
			of(hold("w", 1, 10, 1, 2, 990, 3), shared(hold("a", 1, 10, 1, 10, 990, 100)),
				shared(hold("b", 1, 10, 1, 11, 990, 200))),
			[]string{"linearizability", "tokens", "tokens"}},
		{"a writer beside a reader", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			hold("b", 1, 20, 3, 4, 990, 200)), []string{"exclusion", "linearizability"}},
		{"a reader beside a writer", of(hold("a", 1, 10, 1, 2, 990, 100),
			shared(hold("b", 1, 20, 3, 4, 990, 200))), []string{"exclusion", "linearizability"}},
		{"a writer beside the first of two readers", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			shared(hold("b", 1, 11, 3, 4, 990, 50)), hold("c", 1, 20, 5, 60, 990, 200)),
			[]string{"exclusion", "linearizability"}},
		{"a writer after two readers", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			shared(hold("b", 1, 11, 3, 4, 990, 50)), hold("c", 1, 20, 5, 102, 990, 200)), nil},
		{"a writer after a reader whose lease ran out",
			of(shared(hold("a", 1, 10, 1, 2, 990, 0)), hold("c", 1, 20, 5, 991, 1990, 1200)), nil},

		{"a writer's token below that of a reader before",
			of(shared(hold("a", 1, 20, 1, 2, 990, 100)), hold("b", 1, 10, 110, 120, 990, 200)),
			[]string{"linearizability", "tokens"}},
		{"a reader's token below that of a writer before",
			of(hold("a", 1, 20, 1, 2, 990, 100), shared(hold("b", 1, 10, 110, 120, 990, 200))),
			[]string{"linearizability", "tokens"}},
		{"a writer's token below that of a reader who came at the same time",
			of(shared(hold("a", 1, 20, 1, 5, 990, 100)), hold("b", 1, 10, 4, 120, 990, 200)),
			// no order explains it, because the writer has the key afterwards
			[]string{"linearizability"}},
		{"a writer's token below that of readers, one of them after the writer before",
			of(hold("w", 1, 5, 1, 2, 990, 3), shared(hold("a", 1, 20, 4, 5, 990, 100)),
				shared(hold("b", 1, 6, 6, 7, 990, 100)), hold("c", 1, 10, 110, 120, 990, 200)),
			[]string{"linearizability", "tokens"}},

		{"a reader beside one who was downgraded", of(hold("a", 1, 10, 1, 2, 990, 100),
			lower(20, 30), shared(hold("b", 1, 20, 3, 25, 990, 200))), nil},
		{"a reader who was there before the downgrade", of(hold("a", 1, 10, 1, 2, 990, 100),
			lower(20, 30), shared(hold("b", 1, 20, 3, 19, 990, 200))),
			[]string{"exclusion", "linearizability"}},
		{"a writer beside one who was downgraded", of(hold("a", 1, 10, 1, 2, 990, 100),
			lower(20, 30), hold("b", 1, 20, 3, 50, 990, 200)),
			[]string{"exclusion", "linearizability"}},
		{"a reader beside one whose downgrade had no answer",
			of(hold("a", 1, 10, 1, 2, 990, 100),
				history.Record{Kind: history.Lower, Client: "a", Op: 1, At: ms(20)},
				history.Record{Kind: history.Lowered, Client: "a", Op: 1, At: ms(90),
					Err: "unknown"},
				shared(hold("b", 1, 20, 3, 25, 990, 200))), nil},
		{"a downgrade that nobody confirmed", of(hold("a", 1, 10, 1, 2, 990, 100),
			lower(20, 30)[:2]), []string{"downgrades"}},
		{"a downgrade that was confirmed before it was asked for",
			of(hold("a", 1, 10, 1, 2, 990, 100), lower(20, 30)[:2], confirmed(10, 15)),
			[]string{"downgrades"}},
		{"a downgrade that was confirmed later", of(hold("a", 1, 10, 1, 2, 990, 100),
			lower(20, 30)[:2], confirmed(25, 35)), []string{"downgrades"}},

		{"a rightful reader refused", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			looked(50, history.Refused, 0)), []string{"register"}},
		{"a late reader refused", of(shared(hold("a", 1, 10, 1, 2, 990, 0)),
			looked(995, history.Refused, 0)), nil},
		{"a reader without an answer", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			looked(50, history.Unanswered, 0)), []string{"register"}},
		{"the same value again", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			looked(20, history.Accepted, 7), looked(50, history.Accepted, 7)), nil},
		{"another value", of(shared(hold("a", 1, 10, 1, 2, 990, 100)),
			looked(20, history.Accepted, 7), looked(50, history.Accepted, 8)),
			[]string{"register"}},
		{"another value, read when the lock was lost", of(shared(hold("a", 1, 10, 1, 2, 49, 0)),
			looked(20, history.Accepted, 7), looked(50, history.Accepted, 8)), nil},
		{"another value, written too late", of(hold("b", 1, 5, 1, 2, 9, 0),
			shared(hold("a", 1, 10, 1, 12, 990, 100)), looked(20, history.Accepted, 7),
			wrote("b", 30, history.Accepted, 8), looked(50, history.Accepted, 8)), nil},
		{"another value, and the late write refused", of(hold("b", 1, 5, 1, 2, 9, 0),
			shared(hold("a", 1, 10, 1, 12, 990, 100)), looked(20, history.Accepted, 7),
			wrote("b", 30, history.Refused, 0), looked(50, history.Accepted, 8)),
			[]string{"register"}},
		{"another value, perhaps written by one who died", of(hold("b.1", 1, 5, 1, 2, 990, 9),
			death("b.1", 25), shared(hold("a", 1, 10, 1, 12, 990, 100)),
			looked(20, history.Accepted, 7), looked(50, history.Accepted, 8)), nil},
		{"another value, read by one who died afterwards",
			of(shared(hold("a", 1, 10, 1, 2, 990, 0)), looked(20, history.Accepted, 7),
				looked(50, history.Accepted, 8), death("a", 60)), []string{"register"}},
		{"another value after one's own write", of(hold("a", 1, 10, 1, 2, 990, 100),
			wrote("a", 10, history.Accepted, 7), lower(20, 30), looked(50, history.Accepted, 8)),
			[]string{"register"}},

		{"a reader told after a writer had the key",
			of(shared(hold("a", 1, 10, 1, 2, 990, 0)), hold("b", 1, 20, 50, 1002, 2000, 1100),
				told), []string{"loss"}},
		{"a reader told after another reader had the key",
			of(shared(hold("a", 1, 10, 1, 2, 990, 0)),
				shared(hold("b", 1, 20, 50, 1002, 2000, 1100)), told), nil},
		{"a reader told after a reader and then a writer had the key",
			of(shared(hold("a", 1, 10, 1, 2, 990, 0)),
				shared(hold("b", 1, 20, 50, 991, 2000, 992)),
				hold("c", 1, 30, 50, 1002, 2000, 1100), told), []string{"loss"}},
		{"one who was downgraded told after a reader had the key",
			of(hold("a", 1, 10, 1, 2, 990, 0), lower(20, 30),
				shared(hold("b", 1, 20, 50, 1002, 2000, 1100)), told), nil},
	} {
		t.Run(c.name, func(t *testing.T) { found(t, c.records, c.want) })
	}
}

// found checks which checks find something.
func found(t *testing.T, records []history.Record, want []string) {
	t.Helper()
	foundBy(t, rules, records, want)
}

// foundBy is found by other rules.
func foundBy(t *testing.T, rules check.Rules, records []history.Record, want []string) {
	t.Helper()
	all := check.All(history.Assemble(probed(records)), rules)
	var names []string
	for _, f := range all {
		names = append(names, f.Check)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", all, want)
	}
}

// A process that is killed while it downgrades its lock may have sent the request to a server,
// though nothing of it is recorded.
func TestDowngradeOfAProcessThatIsKilled(t *testing.T) {
	by := func(client string, r history.Record) history.Record {
		return with(r, func(r *history.Record) { r.Client = client })
	}
	began := history.Record{Kind: history.Lower, Client: "a", Op: 1, At: ms(20)}
	reader := func(from int64) history.Record {
		return by("b", with(said(history.Acquire, "n1", "b", 12, from, from+1),
			func(r *history.Record) { r.Shared = true }))
	}
	writer := by("b", said(history.Acquire, "n1", "b", 12, 30, 31))
	base := of(hold("a", 1, 10, 0, 10, 1000, 0),
		by("a", said(history.Acquire, "n1", "a", 10, 1, 9)))
	for what, c := range map[string]struct {
		records []history.Record
		sole    bool // it is found that two had the key
	}{
		"shared after it":    {of(began, death("a", 25), reader(30)), false},
		"shared before it":   {of(began, death("a", 25), reader(15)), true},
		"alone after it":     {of(began, death("a", 25), writer), true},
		"a process at work":  {of(began, reader(30)), true},
		"no downgrade began": {of(death("a", 25), reader(30)), true},
	} {
		all := check.All(history.Assemble(probed(of(base, c.records))), rules)
		got := slices.ContainsFunc(all, func(f check.Finding) bool {
			return f.Check == "sole"
		})
		if got != c.sole {
			t.Errorf("%s: found %v, want %v", what, got, c.sole)
		}
	}
}

// The same for what clients and servers say to each other.
func TestModelOfSharedKeys(t *testing.T) {
	const acquire, renew = history.Acquire, history.Renew
	share := func(r history.Record) history.Record {
		return with(r, func(r *history.Record) { r.Shared = true })
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string
	}{
		{"both share", of(share(said(acquire, "n1", "a", 10, 1, 2)),
			share(said(acquire, "n1", "b", 12, 3, 4))), nil},
		{"one has it alone beside one who shares", of(share(said(acquire, "n1", "a", 10, 1, 2)),
			said(acquire, "n1", "b", 12, 3, 4)), []string{"sole"}},
		{"one shares beside one who has it alone", of(said(acquire, "n1", "a", 10, 1, 2),
			share(said(acquire, "n1", "b", 12, 3, 4))), []string{"sole"}},
		{"alone after the first of two who share", of(share(said(acquire, "n1", "a", 10, 1, 2)),
			share(said(acquire, "n1", "b", 12, 3, 4)), said(history.LetGo, "n1", "b", 0, 5, 6),
			said(acquire, "n1", "c", 14, 7, 8)), []string{"sole"}},
		{"alone after both who share", of(share(said(acquire, "n1", "a", 10, 1, 2)),
			share(said(acquire, "n1", "b", 12, 3, 4)), said(history.LetGo, "n1", "b", 0, 5, 6),
			said(history.LetGo, "n1", "a", 0, 5, 7), said(acquire, "n1", "c", 14, 8, 9)), nil},
		{"shared with one who had it alone", of(said(acquire, "n1", "a", 10, 1, 2),
			share(said(renew, "n1", "a", 12, 5, 8)),
			share(said(acquire, "n1", "b", 14, 6, 7))), nil},
		{"shared with one who asked for that later", of(said(acquire, "n1", "a", 10, 1, 2),
			share(said(acquire, "n1", "b", 12, 3, 4)),
			share(said(renew, "n1", "a", 14, 5, 8))), []string{"sole"}},
		{"alone beside one who had it alone", of(said(acquire, "n1", "a", 10, 1, 2),
			share(said(renew, "n1", "a", 12, 5, 8)), said(acquire, "n1", "b", 14, 9, 10)),
			[]string{"sole"}},
		{"tokens of those who share rise, too", of(share(said(acquire, "n1", "a", 10, 1, 2)),
			share(said(acquire, "n1", "b", 9, 3, 4))), []string{"rising"}},
	} {
		t.Run(c.name, func(t *testing.T) { found(t, c.records, c.want) })
	}
}
