package check_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// permit makes an acquisition one of a slot of "s", by a process that knows so many permits.
func permit(permits, slot int, records []history.Record) []history.Record {
	for i := range records {
		switch records[i].Kind {
		case history.Ask:
			records[i].Key, records[i].Permits = "s", permits
		case history.Grant:
			records[i].Key = history.SlotKey("s", slot)
		}
	}
	return records
}

// probing returns a probe that has so many permits at once.
func probing(permits int) (all []history.Record) {
	for slot := range permits {
		all = append(all, permit(permits, slot,
			hold("probe.1", slot+1, 1<<40, 20_000, 20_001, 20_900, 20_010))...)
	}
	return all
}

// taking returns two acquisitions that keep the first two slots for long.
func taking(until int64) []history.Record {
	return of(permit(3, 0, hold("b", 1, 10, 1, 2, 9000, until)),
		permit(3, 1, hold("c", 1, 10, 1, 2, 9000, until)))
}

func TestPermits(t *testing.T) {
	wants := func(permits int, records []history.Record) []history.Record {
		return permit(permits, 0, records)
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string // checks that find something
	}{
		{"as many as there are", of(permit(2, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 1, 3, 990, 100)), probing(2)), nil},
		{"one after the other", of(permit(1, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(1, 0, hold("b", 1, 20, 1, 102, 1090, 200)), probing(1)), nil},
		{"as many as the larger number", of(permit(2, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 1, 3, 990, 100)),
			permit(3, 2, hold("c", 1, 10, 1, 4, 990, 100)), probing(3)), nil},
		{"tokens that rise for each slot", of(permit(2, 0, hold("a", 1, 20, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 101, 102, 990, 200)), probing(2)), nil},

		{"a slot twice", of(permit(3, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(3, 0, hold("b", 1, 20, 1, 3, 990, 100)), probing(3)),
			[]string{"exclusion", "linearizability"}},
		{"too many on slots that there are", of(permit(2, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 1, 3, 990, 100)),
			permit(2, 0, hold("c", 1, 20, 1, 4, 990, 100)), probing(2)),
			[]string{"exclusion", "linearizability", "permits"}},
		{"a slot that one does not know of", of(permit(2, 2, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(3, 0, hold("b", 1, 10, 200, 201, 990, 300)), probing(3)),
			[]string{"permits"}},
		{"a slot that nobody knows of", of(permit(2, 0, hold("a", 1, 10, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 1, 3, 990, 100)),
			permit(2, 2, hold("c", 1, 10, 1, 4, 990, 100)), probing(2)),
			[]string{"permits", "permits"}},
		{"a token that goes back on one slot", of(permit(2, 1, hold("a", 1, 20, 1, 2, 990, 100)),
			permit(2, 1, hold("b", 1, 10, 101, 102, 990, 200)), probing(2)),
			[]string{"linearizability", "tokens"}},

		{"no probe", of(permit(2, 0, hold("a", 1, 10, 1, 2, 990, 100))), []string{"permits"}},
		{"no probe, and nobody has ever had one", of(wants(2, asking("a", 1, "s", 1, 100))),
			[]string{"permits"}},
		{"a probe of too few", of(permit(3, 0, hold("a", 1, 10, 1, 2, 990, 100)), probing(2)),
			[]string{"permits"}},
		{"a probe of one after the other", of(
			permit(2, 0, hold("probe.1", 1, 10, 20_000, 20_001, 20_900, 20_010)),
			permit(2, 1, hold("probe.1", 2, 10, 20_000, 20_010, 20_900, 20_020))),
			[]string{"permits"}},
		{"a probe that was refused one", of(probing(2)[:4],
			wants(2, asking("probe.1", 2, "s", 20_000, 29_000))), []string{"liveness"}},
		{"a probe that took long", of(
			permit(2, 0, hold("probe.1", 1, 10, 20_000, 20_001, 29_900, 25_010)),
			permit(2, 1, hold("probe.1", 2, 10, 20_000, 25_002, 29_900, 25_010))),
			[]string{"liveness"}},

		{"free and wanted in vain", of(permit(2, 0, hold("b", 1, 10, 1, 2, 9000, 8000)),
			wants(2, asking("a", 1, "s", 50, 3051)), probing(2)), []string{"idle"}},
		{"free and wanted", of(permit(2, 0, hold("b", 1, 10, 1, 2, 9000, 8000)),
			permit(2, 1, hold("a", 1, 10, 50, 3051, 4000, 3060)), probing(2)), []string{"idle"}},
		{"free and wanted, for as long as it may take",
			of(permit(2, 0, hold("b", 1, 10, 1, 2, 9000, 8000)),
				wants(2, asking("a", 1, "s", 50, 3050)), probing(2)), nil},
		{"all taken", of(taking(8000), wants(2, asking("a", 1, "s", 50, 7000)), probing(3)), nil},
		{"all taken, and then free", of(taking(3000), wants(2, asking("a", 1, "s", 50, 6001)),
			probing(3)), []string{"idle"}},
		{"free only for those who know of it", of(taking(8000),
			permit(2, 0, hold("d", 1, 20, 8500, 8501, 9400, 8510)),
			wants(3, asking("a", 1, "s", 50, 7000)), probing(3)), nil},
		{"free and wanted, but the server is down",
			of(wants(2, asking("a", 1, "s", 50, 3051)), probing(2), fault("", 150, 200)), nil},
	} {
		t.Run(c.name, func(t *testing.T) { found(t, c.records, c.want) })
	}
}

// A fault of a slot is an excuse for that slot, and a disturbance for all that wait for any slot.
func TestFaultOfOneSlot(t *testing.T) {
	slot, other, gate := history.SlotKey("s", 0), history.SlotKey("s", 1), history.GateKey("s", 2)
	two := func() []history.Record {
		return of(permit(2, 0, hold("a", 1, 10, 30, 40, 990, 0)),
			permit(2, 1, hold("c", 1, 10, 30, 40, 990, 0)),
			permit(2, 0, hold("b", 1, 20, 50, 101, 990, 200)))
	}
	idle := of(permit(2, 0, asking("a", 1, "s", 50, 3051)), probing(2))
	for _, c := range []struct {
		key           string
		excuses, ends bool
	}{
		{slot, true, true}, {other, false, true}, {gate, false, true}, {"s", false, true},
		{history.SlotKey("r", 0), false, false}, {"k", false, false}, {"", true, true},
	} {
		broken := at(c.key, on("n1", "deleted", 60, 70))
		excused, violated := outcome(t, of(served(two(), 1, nil), probing(2), broken), 1)
		want := map[bool]int{true: 3, false: 0}[c.excuses]
		if len(excused) != want || len(violated) != 3-want {
			t.Errorf("%q broken: excused %v, violated %v", c.key, excused, violated)
		}
		run := history.Assemble(append(idle, broken))
		if found := check.Checks["idle"](run, rules); (len(found) == 0) != c.ends {
			t.Errorf("%q broken: found %v", c.key, found)
		}
	}
}

// A permit is one acquisition of its slot, of a probe as of a client. An acquisition that was not
// granted has no slot.
func TestKeysOfPermits(t *testing.T) {
	run := history.Assemble(of(permit(2, 1, hold("a", 1, 10, 1, 2, 990, 100)),
		permit(2, 0, asking("b", 1, "s", 1, 50))))
	if got := run.Keys(); len(got) != 1 || got[0] != history.SlotKey("s", 1) {
		t.Errorf("keys %q", got)
	}
	for _, a := range run.Acquisitions {
		if a.Lock() != "s" || a.Permits != 2 {
			t.Errorf("%v asked for %q, of %d permits", a, a.Lock(), a.Permits)
		}
	}
}

// A process does not keep a slot that nobody in it has.
func TestKeptPermit(t *testing.T) {
	slot := history.SlotKey("s", 1)
	kept := func(until int64) (all []history.Record) {
		all = of(with(said(history.Acquire, "n1", "a", 10, 100, 101), func(c *history.Record) {
			c.Client, c.Key = "a", slot
		}))
		for at := int64(400); at+990 <= until; at += 300 {
			all = append(all, with(said(history.Renew, "n1", "a", 0, at, at+1),
				func(c *history.Record) { c.Client, c.Key, c.Block = "a", slot, 0 }))
		}
		return all
	}
	const last = 3190 // when the lease ends after its last renewal
	has := func(from, to int64) []history.Record {
		return permit(2, 1, hold("a", 1, 10, from-1, from, to, to-1))
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string
	}{
		{"kept", of(kept(last), probing(2)), []string{"idle"}},
		{"kept for as long as it may be", of(kept(last-300), probing(2)), nil},
		{"held meanwhile", of(kept(last), has(1000, 2000), probing(2)), nil},
		{"kept when it was released", of(kept(last+300), has(110, 150), probing(2)),
			[]string{"idle"}},
		{"kept while it is disturbed", of(kept(last), at(slot, fault("", 150, 160)), probing(2)),
			nil},
		{"kept by one that does not run", of(kept(last), probing(2), history.Record{
			Kind: history.Stall, Client: "a", At: ms(1000), Until: ms(1100)}), nil},
		{"asked for again and again, and not granted", of(probing(2), func() (all []history.Record) {
			for _, r := range kept(last) {
				r.Outcome = "busy"
				all = append(all, r)
			}
			return all
		}()), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The process has asked for something else, too.
			found(t, of(c.records, part(0, "l", asking("a", 9, "l", 1, 2))), c.want)
		})
	}
}

// A slot that was held twice with an excuse explains one permit too many, not two.
func TestExcuseOfOnePermit(t *testing.T) {
	records := served(of(permit(2, 0, hold("a", 1, 10, 30, 40, 990, 0)),
		permit(2, 1, hold("c", 1, 10, 30, 40, 990, 0)),
		permit(2, 2, hold("d", 1, 10, 30, 41, 990, 0)),
		permit(2, 0, hold("b", 1, 20, 50, 101, 990, 200))), 1, nil)
	excused, violated := outcome(t, of(records, probing(2),
		at(history.SlotKey("s", 0), on("n1", "deleted", 60, 70))), 1)
	// One slot was beyond their number, and with it there were too many at once.
	if !slices.Equal(excused, []string{"exclusion", "linearizability"}) ||
		!slices.Equal(violated, []string{"permits", "permits", "permits"}) {
		t.Errorf("excused %v, violated %v", excused, violated)
	}
}
