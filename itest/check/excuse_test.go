package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// on is a fault on targets that breaks an assumption; breaks is empty for one that breaks none.
func on(target, breaks string, from, to int64) history.Record {
	f := fault(breaks, from, to)
	f.Target = target
	return f
}

// at is the same fault on one key only.
func at(key string, f history.Record) history.Record {
	f.Key = key
	return f
}

// outcome names the checks that have found something, with an excuse and without one.
func outcome(t *testing.T, records []history.Record, nodes int) (excused, violated []string) {
	t.Helper()
	rules := rules
	rules.Nodes = nodes
	for _, f := range check.All(history.Assemble(probed(records)), rules) {
		if f.Text == "" {
			t.Errorf("%s has found something and says nothing", f.Check)
		}
		if f.Excuse != "" {
			excused = append(excused, f.Check)
		} else {
			violated = append(violated, f.Check)
		}
	}
	slices.Sort(excused)
	slices.Sort(violated)
	return excused, violated
}

// An excuse holds for what it can explain: the key, the servers, the time.
func TestExcuseExplains(t *testing.T) {
	// Two holders: a from 40 to 990, b from 1101 on, while a's lease was extended.
	two := func(f ...any) []history.Record {
		return of(append([]any{hold("a", 1, 10, 30, 40, 1990, 0),
			hold("b", 1, 20, 1050, 1101, 2090, 1200)}, f...)...)
	}
	// The same with a's lease handed over in its process: it began with the first of them.
	chain := func(asked int64, f ...any) []history.Record {
		return of(append([]any{hold("a", 1, 10, 30, 40, 990, 100),
			hold("a", 2, 11, asked, 102, 990, 0), hold("b", 1, 20, 200, 301, 1200, 400)}, f...)...)
	}
	for _, c := range []struct {
		name    string
		nodes   int
		records []history.Record
		excused bool
	}{
		{"a lone server", 1, two(on("n1", "forgot", 60, 70)), true},
		{"another key", 1, two(at("other", on("n1", "forgot", 60, 70))), false},
		{"the very key", 1, two(at("k", on("n1", "forgot", 60, 70))), true},
		{"before the first was asked for", 1, two(on("n1", "forgot", 10, 29)), false},
		{"just when it was", 1, two(on("n1", "forgot", 10, 30)), true},
		{"just when the second was granted", 1, two(on("n1", "forgot", 1101, 1110)), true},
		{"after the second was granted", 1, two(on("n1", "forgot", 1102, 1110)), false},
		{"a server that does not vote", 1, two(on("n2", "forgot", 60, 70)), false},
		{"nothing was broken that is promised", 1, two(on("n1", "", 60, 70)), false},
		{"while the one before it held", 1, chain(50, on("n1", "forgot", 45, 46)), true},
		{"while the one before it held, which did not pass it on", 1,
			chain(102, on("n1", "forgot", 45, 46)), false},

		{"a minority, while the others can be reached", 3, two(on("n1", "jumped", 60, 70)), false},
		{"the same minority twice", 3, two(on("n1", "jumped", 60, 70), on("n1", "jumped", 80, 90)),
			false},
		{"a majority", 3, two(on("n1 n3", "jumped", 60, 70)), true},
		{"a majority, one after the other", 3,
			two(on("n1", "jumped", 60, 70), on("n3", "jumped", 80, 90)), true},
		{"a majority, but not on this key", 3,
			two(on("n1", "jumped", 60, 70), at("other", on("n3", "jumped", 80, 90))), false},
		{"a majority of five is three", 5, two(on("n1 n3", "jumped", 60, 70)), false},
		{"a minority, and one that was down", 3,
			two(on("n1", "jumped", 60, 70), on("n2", "", 20, 50)), true},
		{"a minority, and one that was down long before", 3,
			two(on("n1", "jumped", 3060, 3070), on("n2", "", 10, 20),
				hold("a", 2, 30, 3030, 3040, 4990, 0),
				hold("b", 2, 40, 4050, 4101, 5090, 4200), on("n1", "jumped", 1101, 1102)), false},
		{"a minority, and one that the second could not reach", 3,
			two(on("n1", "jumped", 60, 70), on("b-n2", "", 1060, 1090)), true},
		{"a minority, and one that was down just before", 3,
			two(on("n1", "jumped", 60, 70), on("n2", "", 10, 20)), true},
		{"a minority, and only that one could not be reached", 3,
			two(on("n1", "jumped", 60, 70), on("b-n1", "", 1060, 1090)), false},
		{"a minority, and a first that could reach none", 3,
			two(on("n1", "jumped", 60, 70), on("a", "", 60, 90)), true},
		{"a minority, and one that somebody else could not reach", 3,
			two(on("n1", "jumped", 60, 70), on("c-n2 d", "", 1060, 1090)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			excused, violated := outcome(t, c.records, c.nodes)
			if len(excused)+len(violated) == 0 {
				t.Fatal("nothing was found")
			}
			if c.excused != (len(violated) == 0) {
				t.Errorf("excused %v, violated %v; want it excused: %v", excused,
					violated, c.excused)
			}
		})
	}
}

// Each check: what it must report, with an excuse that explains it and with one that just does not.
func TestExcusesOfEachCheck(t *testing.T) {
	told := func(client string, op int, at int64) history.Record {
		return history.Record{Kind: history.Tell, Client: client, Op: op, At: ms(at), Err: "lost"}
	}
	stall := func(client string, from, to int64) history.Record {
		return history.Record{Kind: history.Stall, Client: client, At: ms(from), Until: ms(to)}
	}
	refused := history.Record{Kind: history.Write, Client: "a", Op: 1, At: ms(150), Until: ms(151),
		Outcome: history.Refused}
	two := of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 101, 1090, 200))
	elsewhere := func(records []history.Record) []history.Record {
		records = slices.Clone(records)
		for i := range records {
			records[i].Op += 10
			records[i].At += ms(20000)
			if records[i].Until != 0 {
				records[i].Until += ms(20000)
			}
			if records[i].Token != 0 {
				records[i].Token += 100
			}
		}
		return records
	}
	late := of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
		told("a", 1, 1010))
	much := of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1100),
		told("a", 1, 1500))
	asked := history.Record{Kind: history.Ask, Client: "probe.1", Op: 1, Key: "k", At: ms(3000)}
	granted := func(at int64) history.Record {
		return history.Record{Kind: history.Grant, Client: "probe.1", Op: 1, Key: "k", At: ms(at),
			Token: 99, Until: ms(at + 900)}
	}
	wanted := of(hold("a", 1, 10, 1, 2, 990, 100), hold("b", 1, 20, 50, 5000, 5990, 5100))

	for _, c := range []struct {
		name              string
		records           []history.Record
		excused, violated []string
	}{
		{"exclusion", of(two, on("n1", "forgot", 60, 70)), []string{"exclusion", "linearizability"},
			nil},
		{"exclusion, and again without an excuse",
			of(two, on("n1", "forgot", 60, 70), elsewhere(two)), []string{"exclusion"},
			[]string{"exclusion", "linearizability"}},
		{"exclusion of three, one of whom is not explained",
			of(hold("a", 1, 10, 1, 2, 5000, 0), on("n1", "forgot", 60, 70),
				hold("b", 1, 20, 75, 101, 4000, 0),
				hold("c", 1, 30, 80, 201, 1000, 300)), []string{"exclusion", "exclusion"},
			[]string{"exclusion", "linearizability"}},

		{"register, explained by a second holder", of(two, refused, on("n1", "forgot", 60, 70)),
			[]string{"exclusion", "linearizability", "register"}, nil},
		{"register, with a second holder on whom there is no excuse",
			of(two, refused, on("n1", "forgot", 120, 130)), nil,
			[]string{"exclusion", "linearizability", "register"}},
		{"register, without a second holder", of(hold("a", 1, 10, 1, 2, 990, 0), refused,
			on("n1", "forgot", 60, 70)), nil, []string{"register"}},
		{"register, with a second holder whose token is smaller",
			of(hold("a", 1, 30, 1, 2, 990, 0), hold("b", 1, 20, 1, 101, 1090, 200), refused,
				on("n1", "forgot", 60, 70)),
			[]string{"exclusion", "linearizability"}, []string{"register"}},

		{"register, with a second holder who was there and gone before the first was granted",
			of(hold("a", 1, 10, 1, 140, 990, 0), hold("b", 1, 20, 50, 101, 1090, 130), refused,
				on("n1", "forgot", 60, 70)), []string{"linearizability", "register"}, nil},
		{"the same, and it was broken when both were over",
			of(hold("a", 1, 10, 1, 140, 990, 0), hold("b", 1, 20, 50, 101, 1090, 130), refused,
				on("n1", "forgot", 141, 150)), nil, []string{"linearizability", "register"}},
		{"register, with a second holder who was gone before the first asked",
			of(hold("a", 1, 10, 131, 140, 990, 0), hold("b", 1, 20, 50, 101, 1090, 130), refused,
				on("n1", "forgot", 60, 140)), nil,
			[]string{"linearizability", "register", "tokens"}},

		{"loss, while something was broken", of(late, on("n1", "forgot", 995, 1000)),
			[]string{"loss"}, nil},
		{"loss, and broken afterwards", of(late, on("n1", "forgot", 1006, 1010)), nil,
			[]string{"loss"}},
		{"loss, stopped", of(late, stall("a", 980, 1009)), nil, nil},
		{"loss, told as late as one is with a stall that nobody notices",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1000, 2000, 1100),
				told("a", 1, 1005)), nil, nil},
		{"loss, told later than that",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1000, 2000, 1100),
				told("a", 1, 1006)), nil, []string{"loss"}},
		{"loss, another one stopped", of(late, stall("b", 980, 1009)), nil, []string{"loss"}},
		{"loss, stopped before", of(late, stall("a", 900, 969)), nil, []string{"loss"}},
		{"loss, stopped afterwards", of(late, stall("a", 1031, 1100)), nil, []string{"loss"}},
		{"loss, stopped for as long as it takes", of(much, stall("a", 980, 1490)), nil, nil},
		{"loss, not stopped for that long", of(much, stall("a", 980, 1300)), nil, []string{"loss"}},

		{"idle", wanted, nil, []string{"idle"}},
		{"idle, while it was broken", of(wanted, on("n1", "", 150, 4000)), nil, nil},
		{"idle, and broken for too short to explain it",
			of(wanted, on("n1", "", 150, 160), elsewhere(wanted)), nil, []string{"idle"}},
		{"idle, while another key was broken", of(wanted, at("other", on("n1", "", 150, 4000))),
			nil, []string{"idle"}},

		{"tokens have no excuse", of(hold("a", 1, 10, 1, 2, 990, 100), on("n1", "forgot", 101, 102),
			hold("b", 1, 9, 103, 104, 1090, 200)), nil, []string{"linearizability", "tokens"}},

		{"liveness, in time", of(asked, granted(3000+5000)), nil, nil},
		{"liveness, too late", of(asked, granted(3000+5001)), nil, []string{"liveness"}},
		{"liveness, too late by what it did not run",
			of(asked, granted(3000+5200), stall("probe.1", 3100, 3101)), nil, nil},
		{"liveness, too late by what the network did not run",
			of(asked, granted(3000+5001), stall("lab", 3100, 3101)), nil, nil},
		{"liveness, too late by what neither ran",
			of(asked, granted(3000+5700), stall("lab", 3100, 3600), stall("probe.1", 3101, 3102)),
			nil, nil},
		{"liveness, too late whatever somebody else's process did",
			of(asked, granted(3000+5001), stall("a", 3100, 3101)), nil, []string{"liveness"}},
		{"liveness, too late by more than it did not run",
			of(asked, granted(3000+5300), stall("probe.1", 3100, 3101), stall("lab", 3100, 3101)),
			nil, []string{"liveness"}},
		{"idle, while the network did not run", of(wanted, stall("lab", 1000, 3500)), nil, nil},
		{"idle, and the network did not run for a moment now and then",
			of(wanted, stall("lab", 2000, 2100), stall("lab", 4200, 4300)), nil, []string{"idle"}},
		{"idle, while somebody else's process did not run",
			of(wanted, stall("c", 2000, 2100), stall("c", 4200, 4300)), nil, []string{"idle"}},
		{"liveness has no excuse", of(asked, granted(3000+5001), on("n1", "forgot", 3000, 4000)),
			nil, []string{"liveness"}},
		{"leaks have no excuse",
			of(history.Record{Kind: history.Done, Client: "a", At: ms(1), Count: 2},
				on("n1", "forgot", 1, 2)), nil, []string{"leaks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			excused, violated := outcome(t, c.records, 1)
			if !slices.Equal(excused, c.excused) || !slices.Equal(violated, c.violated) {
				t.Errorf("excused %v, want %v; violated %v, want %v", excused, c.excused,
					violated, c.violated)
			}
		})
	}
}

// A key that nobody tried in the end, or a run without any probe, is no proof of liveness.
func TestLivenessNeedsProbes(t *testing.T) {
	find := func(records []history.Record) (keys []string) {
		for _, f := range check.Checks["liveness"](history.Assemble(records), rules) {
			keys = append(keys, f.Key)
		}
		return keys
	}
	one := hold("a", 1, 10, 1, 2, 990, 100)
	other := history.Record{Kind: history.Ask, Client: "b", Op: 1, Key: "other", At: ms(1)}
	if got := find(probed(of(one, other))); got != nil {
		t.Errorf("with probes: %q", got)
	}
	if got, want := find(of(one, other)), []string{""}; !slices.Equal(got, want) {
		t.Errorf("without: %q, want %q", got, want)
	}
	if got, want := find(append(probed(one), other)), []string{"other"}; !slices.Equal(got, want) {
		t.Errorf("without one for a key: %q, want %q", got, want)
	}
	if got, want := find(nil), []string{""}; !slices.Equal(got, want) {
		t.Errorf("of nothing: %q, want %q", got, want)
	}
}

// A search that was given up has shown nothing, whatever was broken.
func TestUndecidedIsAViolation(t *testing.T) {
	check.SearchGivesUp(t)
	records := of(hold("a", 1, 10, 1, 2, 990, 100),
		on("n1", "forgot", 1, int64(time.Minute/time.Millisecond)))
	if excused, violated := outcome(t, records, 1); len(excused) != 0 ||
		!slices.Equal(violated, []string{"linearizability"}) {
		t.Errorf("excused %v, violated %v", excused, violated)
	}
	if found := check.Checks["linearizability"](history.Assemble(records),
		rules); len(found) != 1 || !found[0].Open {
		t.Errorf("found %+v, which has to tell that nothing was shown", found)
	}
}
