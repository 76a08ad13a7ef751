package check_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// on returns a fault on targets that breaks an assumption, or none if breaks is empty.
func on(target, breaks string, from, to int64) history.Record {
	f := fault(breaks, from, to)
	f.Target = target
	return f
}

// at returns the same fault on one key only.
func at(key string, f history.Record) history.Record {
	f.Key = key
	return f
}

// served adds what servers said to those that were granted a lock. Each server has granted it, or
// those that by names for the client, and each hears of its release. A lock that is held for longer
// than a lease was renewed in time.
func served(records []history.Record, nodes int, by map[string]string) (all []history.Record) {
	asked, granted := make(map[string]history.Record), make(map[string]history.Record)
	for _, r := range records {
		id := fmt.Sprintf("%s/%d", r.Client, r.Op)
		servers := strings.Fields(cmp.Or(by[r.Client], "n1"))
		if nodes > 1 {
			servers = append(servers, "all")
		}
		key := cmp.Or(r.Key, granted[id].Key, asked[id].Key)
		call := history.Record{Kind: history.Call, Client: r.Client, Key: key, Owner: id,
			Outcome: "held", TTL: ms(1000)}
		for _, call.Target = range servers {
			switch r.Kind {
			case history.Ask:
				asked[id] = r
			case history.Grant:
				granted[id] = r
				call.Name, call.Token, call.Block = history.Acquire, r.Token, 1
				call.At, call.Until = asked[id].At, r.At
				all = append(all, call)
				call.Name, call.Token, call.Block = history.Renew, 0, 0
				for end := call.At + ms(990); end < r.Until; end += ms(900) {
					call.At, call.Until = end-ms(90), end-ms(89)
					all = append(all, call)
				}
			case history.Release:
				call.Name, call.At, call.Until = history.LetGo, r.At, r.At+1
				all = append(all, call)
			}
		}
	}
	return append(all, records...)
}

// outcome returns the names of the checks that have found something, with an excuse and without
// one. It leaves out the checks of what servers say.
func outcome(t *testing.T, records []history.Record, nodes int) (excused, violated []string) {
	t.Helper()
	rules := rules
	rules.Nodes = nodes
	for _, f := range check.All(history.Assemble(probed(records)), rules) {
		if f.Text == "" {
			t.Errorf("%s has found something and says nothing", f.Check)
		}
		if (f.Excuse == "") != (f.Because == "") {
			t.Errorf("%v: the excuse is %q because of %q", f, f.Excuse, f.Because)
		}
		switch {
		case slices.Contains([]string{"sole", "rising", "acknowledged"}, f.Check):
		case f.Excuse != "":
			excused = append(excused, f.Check)
		default:
			violated = append(violated, f.Check)
		}
	}
	slices.Sort(excused)
	slices.Sort(violated)
	return excused, violated
}

// An excuse holds for what it can explain: the key, the server, the time.
func TestExcuseExplains(t *testing.T) {
	// Two holders: a from 40 to 1990, renewed at 930 and 1830; and b from 1101 on.
	two := of(hold("a", 1, 10, 30, 40, 1990, 0), hold("b", 1, 20, 1050, 1101, 2090, 1200))
	// They are granted by n1 and n2, and by n1 and n3.
	meet := map[string]string{"a": "n1 n2", "b": "n1 n3"}
	// They are granted by all, or by all that the second one needs.
	all := map[string]string{"a": "n1 n2 n3", "b": "n1 n2"}
	one := map[string]string{"a": "n1", "b": "n1"}
	for _, c := range []struct {
		name    string
		nodes   int
		by      map[string]string
		faults  []history.Record
		excused bool
	}{
		{"a lone server", 1, one, of(on("n1", "forgot", 960, 970)), true},
		{"another key", 1, one, of(at("other", on("n1", "forgot", 960, 970))), false},
		{"the very key", 1, one, of(at("k", on("n1", "forgot", 960, 970))), true},
		{"just when it was renewed", 1, one, of(on("n1", "forgot", 920, 930)), true},
		{"before it was renewed", 1, one, of(on("n1", "forgot", 60, 929)), false},
		{"just when the second was granted", 1, one, of(on("n1", "forgot", 1101, 1110)), true},
		{"after the second was granted", 1, one, of(on("n1", "forgot", 1102, 1110)), false},
		{"another server", 1, one, of(on("n2", "forgot", 960, 970)), false},
		{"nothing was broken that is promised", 1, one, of(on("n1", "", 960, 970)), false},
		{"not all was broken that is promised", 1, one,
			of(on("n1", "", 950, 955), on("n1", "forgot", 960, 970)), true},

		{"the only one that has granted both", 3, meet, of(on("n1", "jumped", 960, 970)), true},
		{"one that has granted the first", 3, meet, of(on("n2", "jumped", 960, 970)), false},
		{"one that has granted the second", 3, meet, of(on("n3", "jumped", 960, 970)), false},
		{"all but the one that has granted both", 3, meet,
			of(on("n2 n3", "jumped", 960, 970)), false},
		{"that one on another key", 3, meet, of(at("other", on("n1", "jumped", 960, 970))), false},
		{"that one too early", 3, meet, of(on("n1", "jumped", 60, 70)), false},
		{"that one forgot, and its quarantine should have kept it out", 3, meet,
			of(on("n1", "", 960, 970), on("n2", "jumped", 960, 970), on("n3", "", 20, 50)), false},

		{"a minority of those that have granted both", 3, all,
			of(on("n1", "jumped", 960, 970)), false},
		{"a minority, and the other one was down", 3, all,
			of(on("n1", "jumped", 960, 970), on("n2", "", 960, 970)), false},
		{"a minority, and the second could not reach the other one", 3, all,
			of(on("n1", "jumped", 960, 970), on("b-n2", "", 1060, 1090)), false},
		{"a minority, and the second could reach none", 3, all,
			of(on("n1", "jumped", 960, 970), on("b", "", 1060, 1090)), false},
		{"all that have granted both", 3, all, of(on("n1 n2", "jumped", 960, 970)), true},
		{"all of them, one after the other", 3, all,
			of(on("n1", "jumped", 960, 970), on("n2", "forgot", 1080, 1090)), true},
		{"all of them, one on another key", 3, all,
			of(on("n1", "jumped", 960, 970), at("other", on("n2", "jumped", 960, 970))), false},
		{"no server has granted both", 3, map[string]string{"a": "n1", "b": "n2"},
			of(on("n1 n2 n3", "jumped", 960, 970)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			excused, violated := outcome(t, append(served(two, c.nodes, c.by), c.faults...),
				c.nodes)
			if want := []string{"exclusion", "linearizability"}; c.excused &&
				!slices.Equal(excused, want) || !c.excused && !slices.Equal(violated, want) {
				t.Errorf("excused %v, violated %v; want it excused: %v", excused,
					violated, c.excused)
			}
		})
	}
}

// An excuse needs the answers of servers: without them nobody knows what a grant rests on.
func TestExcuseRestsOnAnswers(t *testing.T) {
	two := of(hold("a", 1, 10, 30, 40, 990, 0), hold("b", 1, 20, 50, 101, 1090, 200),
		on("n1", "forgot", 60, 70))
	calls := func(name, owner string, token uint64, from, to int64) history.Record {
		return with(said(name, "n1", owner, token, from, to),
			func(r *history.Record) { r.Client, r.Block = owner, 1 })
	}
	const acquire, renew, release, notice = history.Acquire, history.Renew, history.LetGo,
		history.Notice
	busy := with(calls(acquire, "b", 0, 50, 52), func(r *history.Record) { r.Outcome = "busy" })
	shares := func(r history.Record) history.Record { r.Shared = true; return r }
	elsewhere := func(r history.Record, ttl int64) history.Record {
		r.Target, r.TTL = "n2", ms(ttl)
		return r
	}
	for _, c := range []struct {
		name    string
		calls   []history.Record
		excused bool
	}{
		{"nothing was said", nil, false},
		{"the first was not granted", of(calls(acquire, "b", 20, 50, 101)), false},
		{"both were", of(calls(acquire, "a", 10, 30, 40), calls(acquire, "b", 20, 50, 101)), true},
		{"the second with another token",
			of(calls(acquire, "a", 10, 30, 40), calls(acquire, "b", 21, 50, 101)), false},
		{"the second was told of it", of(calls(acquire, "a", 10, 30, 40), busy,
			with(calls(notice, "b", 20, 100, 100), func(r *history.Record) { r.TTL = 0 })), true},
		{"the first had let go before it was broken", of(calls(acquire, "a", 10, 30, 40),
			calls(release, "a", 0, 45, 46), calls(acquire, "b", 20, 50, 101)), false},
		{"the first was renewed when it had been broken", of(calls(acquire, "a", 10, 30, 40),
			calls(renew, "a", 0, 71, 72), calls(acquire, "b", 20, 73, 101)), false},
		{"the first was renewed meanwhile", of(calls(acquire, "a", 10, 30, 40),
			calls(renew, "a", 0, 65, 72), calls(acquire, "b", 20, 73, 101)), true},
		{"the first was renewed when the second had been granted",
			of(calls(acquire, "a", 10, 30, 40), calls(acquire, "b", 20, 71, 80),
				calls(renew, "a", 0, 90, 95)), false},
		{"the first was renewed later", of(calls(acquire, "a", 10, 30, 40),
			calls(acquire, "b", 20, 50, 101), calls(renew, "a", 0, 110, 120)), true},
		{"there is another server, whose lease may have run out before",
			of(calls(acquire, "a", 10, 30, 40), calls(acquire, "b", 20, 71, 101),
				elsewhere(calls(acquire, "a", 10, 30, 40), 50),
				elsewhere(calls(acquire, "b", 20, 71, 101), 1000)), true},
		{"there is another server, whose lease has not run out",
			of(calls(acquire, "a", 10, 30, 40), calls(acquire, "b", 20, 71, 101),
				elsewhere(calls(acquire, "a", 10, 30, 40), 80),
				elsewhere(calls(acquire, "b", 20, 71, 101), 1000)), false},
		{"the server says that both share it", of(shares(calls(acquire, "a", 10, 30, 40)),
			shares(calls(acquire, "b", 20, 50, 101))), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if excused, violated := outcome(t, append(c.calls, two...),
				1); c.excused != (len(excused) > 0) || c.excused == (len(violated) > 0) {
				t.Errorf("excused %v, violated %v; want it excused: %v", excused, violated,
					c.excused)
			}
		})
	}
}

// A process that was stopped hears of a grant late, and asks again meanwhile. The server may have
// made the grant at any time since the last answer.
func TestExcuseOfANoticeThatIsLate(t *testing.T) {
	call := func(name, owner, outcome string, token uint64, from, to int64) history.Record {
		return with(said(name, "n1", owner, token, from, to), func(r *history.Record) {
			r.Client, r.Block, r.Outcome = owner, 1, outcome
		})
	}
	records := of(hold("a", 1, 10, 30, 110, 990, 130), hold("b", 1, 20, 70, 75, 1065, 90),
		call(history.Acquire, "a", "busy", 0, 30, 32),
		call(history.Acquire, "a", history.Failed, 0, 97, 99),
		call(history.Notice, "a", "held", 10, 98, 98),
		call(history.Acquire, "b", "held", 20, 70, 75), call(history.LetGo, "b", "held", 0, 90, 91),
		history.Record{Kind: history.Write, Client: "a", Op: 1, At: ms(120), Until: ms(121),
			Outcome: history.Refused}, on("n1", "jumped", 60, 62))
	excused, violated := outcome(t, records, 1)
	if want := []string{"linearizability", "register"}; !slices.Equal(excused, want) ||
		violated != nil {
		t.Errorf("excused %v, violated %v", excused, violated)
	}
}

// A process hears of a grant before any question is answered: there was no answer to the first one,
// and the second one is answered later.
func TestExcuseOfANoticeThatIsEarly(t *testing.T) {
	call := func(name, owner, outcome string, token uint64, from, to int64) history.Record {
		return with(said(name, "n1", owner, token, from, to), func(r *history.Record) {
			r.Client, r.Block, r.Outcome = owner, 1, outcome
		})
	}
	for broken, want := range map[int64]bool{40: true, 29: false, 76: false} {
		excused, violated := outcome(t, of(hold("a", 1, 10, 30, 85, 990, 100),
			hold("b", 1, 20, 34, 75, 1065, 90),
			call(history.Acquire, "a", history.Failed, 0, 30, 32),
			call(history.Acquire, "a", "busy", 0, 50, 80),
			with(call(history.Notice, "a", "held", 10, 60, 60),
				func(r *history.Record) { r.TTL = 0 }),
			call(history.Acquire, "b", "held", 20, 34, 75),
			on("n1", "forgot", broken, broken)), 1)
		if (len(excused) > 0) != want || (len(violated) > 0) == want {
			t.Errorf("broken at %d: excused %v, violated %v", broken, excused, violated)
		}
	}
}

// On several servers an acquisition rests on what they gave it together: at one of them, another
// claim of its process may have had the same token.
func TestExcuseIsOfTheClaim(t *testing.T) {
	records := served(of(hold("a", 1, 10, 30, 40, 990, 0), hold("b", 1, 20, 50, 101, 1090, 200)),
		3, map[string]string{"a": "n1 n2", "b": "n1 n3"})
	records = append(records, on("n1", "forgot", 60, 70),
		with(said(history.Acquire, "n3", "a/0", 10, 30, 40),
			func(r *history.Record) { r.Client = "a" }))
	excused, violated := outcome(t, records, 3)
	if want := []string{"exclusion", "linearizability"}; !slices.Equal(excused, want) {
		t.Errorf("excused %v, violated %v", excused, violated)
	}
}

// An excuse says what was broken, where, and between which answers.
func TestExcuseSaysWhy(t *testing.T) {
	records := served(of(hold("a", 1, 10, 30, 40, 990, 0), hold("b", 1, 20, 50, 101, 1090, 200)),
		3, map[string]string{"a": "n1 n2", "b": "n1 n2"})
	records = append(records, on("n2", "forgot", 70, 80), on("n1 n3", "jumped", 60, 90))
	rules := rules
	rules.Nodes = 3
	found := check.Checks["exclusion"](history.Assemble(records), rules)
	if len(found) != 1 {
		t.Fatal(found)
	}
	const why = "n1 granted k to a/1 and to b/1 between 0.000 s and 0.071 s, fault from 0.030 s " +
		"to 0.060 s; n2 granted k to a/1 and to b/1 between 0.000 s and 0.071 s, fault from " +
		"0.040 s to 0.050 s"
	if f := found[0]; f.Excuse != "jumped" || f.Because != why ||
		!strings.HasSuffix(f.String(), " (jumped: "+why+")") {
		t.Errorf("found %v", f)
	}
}

// A turn that is handed over in memory may have an older token than another process that was
// granted the key meanwhile, if the token is of a block that was drawn before. A token that is
// drawn after that may not be older, whatever was broken.
func TestExcuseOfAReservedToken(t *testing.T) {
	call := func(name, client string, token uint64, from, to int64) history.Record {
		return with(said(name, "n1", client, token, from, to), func(r *history.Record) {
			r.Client = client
			if r.Token != 0 {
				r.Block = 64
			}
		})
	}
	deleted := on("n1", "somebody deleted the key of a lock", 20, 21)
	run := call(history.Acquire, "a", 10, 1, 2)
	other := of(hold("b", 1, 200, 30, 31, 1000, 90), call(history.Acquire, "b", 200, 30, 31))
	turn := hold("a", 2, 11, 40, 41, 990, 80)
	for what, c := range map[string]struct {
		records           []history.Record
		excused, violated bool
	}{
		"a turn of the run":        {of(run, other, turn, deleted), true, false},
		"nothing was broken":       {of(run, other, turn), false, true},
		"it was broken after both": {of(run, other, turn, on("n1", "x", 50, 51)), false, true},
		"the token was drawn later": {of(other, turn, call(history.Acquire, "a", 11, 40, 41),
			on("n1", "somebody deleted the key of a lock", 35, 36)), false, true},
	} {
		excused, violated := outcome(t, of(c.records, death("a", 100), death("b", 100)), 1)
		if slices.Contains(excused, "tokens") != c.excused ||
			slices.Contains(violated, "tokens") != c.violated {
			t.Errorf("%s: excused %v, violated %v", what, excused, violated)
		}
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
		told("a", 1, 1021))
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

		{"loss, as something was broken", of(hold("a", 1, 10, 1, 2, 990, 0),
			hold("b", 1, 20, 50, 300, 1290, 400), told("a", 1, 500), on("n1", "forgot", 60, 70)),
			[]string{"exclusion", "linearizability", "loss"}, nil},
		{"loss, and broken afterwards", of(hold("a", 1, 10, 1, 2, 990, 0),
			hold("b", 1, 20, 50, 300, 1290, 400), told("a", 1, 500), on("n1", "forgot", 301, 400)),
			nil, []string{"exclusion", "linearizability", "loss"}},
		{"loss, told late after its deadline, which no server can explain",
			of(late, on("n1", "forgot", 995, 1000)), nil, []string{"loss"}},
		{"loss, stopped", of(late, stall("a", 980, 1009)), nil, nil},
		{"loss, told as late as one is with a stall that nobody notices",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1000, 2000, 1100),
				told("a", 1, 1020)), nil, nil},
		{"loss, told later than that",
			of(hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1000, 2000, 1100),
				told("a", 1, 1021)), nil, []string{"loss"}},
		{"loss, another one stopped", of(late, stall("b", 980, 1009)), nil, []string{"loss"}},
		{"loss, stopped before", of(late, stall("a", 900, 969)), nil, []string{"loss"}},
		{"loss, stopped afterwards", of(late, stall("a", 1042, 1100)), nil, []string{"loss"}},
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
			excused, violated := outcome(t, served(c.records, 1, nil), 1)
			if !slices.Equal(excused, c.excused) || !slices.Equal(violated, c.violated) {
				t.Errorf("excused %v, want %v; violated %v, want %v", excused, c.excused,
					violated, c.violated)
			}
		})
	}
}

// A key that nobody tried in the end, or a run without a probe, proves no liveness.
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
