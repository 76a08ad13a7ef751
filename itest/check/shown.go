package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// absence finds what a run lacks that every run has to have.
type absence struct {
	run   *history.Run
	found []Finding
}

func (s *absence) say(format string, args ...any) {
	s.found = append(s.found,
		Finding{Check: "shown", At: s.run.End, Text: fmt.Sprintf(format, args...)})
}

// shown: the run went on to its end, each of its clients did everything that other checks look at,
// and the nemesis did what it had to do. Without that the other checks have nothing to find. It is
// no promise of the library, so nothing excuses it.
func shown(run *history.Run) []Finding {
	s := &absence{run: run}
	s.phases()
	for i := range run.Setup.Clients {
		s.client(fmt.Sprintf("c%d", i+1))
	}
	s.stores()
	s.readers()
	s.faults()
	s.assumptions()
	s.undisturbed()
	return s.found
}

// phases: all of them are there.
func (s *absence) phases() {
	if s.run.Setup.TTL == 0 || s.run.Setup.Clients == 0 {
		s.say("it is not recorded what was run")
	}
	for _, name := range []string{history.Tormented, history.Calm, history.Probed, history.Closed,
		history.Ended} {
		if s.run.Mark(name) == 0 {
			s.say("the record has no beginning of the phase %q", name)
		}
	}
}

// client: it was granted locks, by servers that its calls asked, and wrote while it had them.
func (s *absence) client(name string) {
	granted, wrote := 0, 0
	for _, a := range s.run.Acquisitions {
		if slot(a.Client) == name && a.Granted != 0 {
			granted++
			wrote += len(a.Writes) - len(slices.DeleteFunc(slices.Clone(a.Writes), accepted))
		}
	}
	servers, together := 0, 0
	for _, c := range s.run.Calls {
		if slot(c.Client) == name && c.Outcome == held && drew(c) {
			if c.Target == whole {
				together++
			} else {
				servers++
			}
		}
	}
	several := s.run.Setup.Count > 1
	switch {
	case granted == 0:
		s.say("%s was never granted a lock", name)
	case wrote == 0:
		s.say("%s wrote nothing with %d locks", name, granted)
	case servers == 0 || several && together == 0:
		s.say("%s was granted %d locks, and its calls for them are not recorded", name, granted)
	}
}

func accepted(write history.Record) bool { return write.Outcome == history.Accepted }

// stores: they mostly answered. Of a store that does not, for whatever reason, nothing is known.
func (s *absence) stores() {
	tried, failed := make(map[string]int), make(map[string]int)
	for place, tries := range triesOf(s.run) {
		for _, t := range tries {
			tried[place.store]++
			if t.Outcome == history.Failed {
				failed[place.store]++
			}
		}
	}
	for store, n := range failed {
		if n*10 > tried[store] {
			s.say("%s has not answered %d of %d times", store, n, tried[store])
		}
	}
}

// readers: there are readers, sets and permits if clients are to ask for them, and some writers are
// downgraded.
func (s *absence) readers() {
	shared, lowered, sets := 0, 0, 0
	known := make(map[int]bool) // how many permits were known to those who were granted one
	for _, a := range s.run.Acquisitions {
		switch {
		case a.Granted == 0 || IsProbe(a):
		case a.Semaphore != "":
			known[a.Permits] = true
		case a.Set != 0:
			sets++
		case a.Shared:
			shared++
		case a.Lowered != 0:
			lowered++
		}
	}
	if s.run.Setup.Sharing && (shared == 0 || lowered == 0) {
		s.say("%d locks were shared, and %d downgraded", shared, lowered)
	}
	if s.run.Setup.Set > 0 && sets == 0 {
		s.say("no set was granted")
	}
	// Every second pair of clients knows another number.
	if s.run.Setup.Permits > 0 && len(known) < min(2, (s.run.Setup.Clients+1)/2) {
		s.say("permits were granted to clients that know %d different numbers of them", len(known))
	}
}

// Absent returns the kinds of faults that were planned and did not come up.
func Absent(run *history.Run) (names []string) {
	came := comings(run)
	for _, p := range run.Plans {
		if came[p.Name] == 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// comings counts how often each kind of fault came up.
func comings(run *history.Run) map[string]int {
	came := make(map[string]int)
	for _, f := range run.Faults {
		came[f.Drawn]++
	}
	return came
}

// faults: those of all kinds came up, if there was time. What hits servers, the network and clients
// is drawn in turns. Several leases for each are enough.
func (s *absence) faults() {
	turn, came := make(map[string]int), make(map[string]int)
	each := comings(s.run)
	for _, p := range s.run.Plans {
		turn[p.Target] += p.Count
		came[p.Target] += each[p.Name]
	}
	lasted := s.run.Mark(history.Calm) - s.run.Mark(history.Tormented)
	took := 10 * s.run.Setup.TTL
	for target, all := range turn {
		if came[target] == 0 && lasted >= took {
			s.say("no fault hit the %s in %v", target, time.Duration(lasted))
		}
		for _, p := range s.run.Plans {
			if p.Target == target && came[target] > 0 && each[p.Name] == 0 &&
				lasted >= took*int64(all) {
				s.say("the fault %q never came up in %v", p.Name, time.Duration(lasted))
			}
		}
	}
}

// assumptions: they were not broken where they must hold: a break would excuse violations.
func (s *absence) assumptions() {
	if s.run.Setup.Limits {
		return
	}
	for _, f := range s.run.Faults {
		if f.Breaks != "" {
			s.say("the fault %q broke an assumption, which nothing was to do: %s", f.Name, f.Breaks)
		}
	}
}

// undisturbed: the run was so for long enough to see that a key is idle. A run in which clients are
// stopped past their leases until the end never is. If it was the machine that was too busy, this
// tells of the machine alone.
func (s *absence) undisturbed() {
	if s.run.Setup.Stale > 0 {
		return
	}
	had := Watched(s.run, s.run.Mark(history.Probed))
	if had.Undisturbed > LongestIdle {
		return
	}
	s.say("for no longer than %v nothing was broken while clients were at work, and for no longer "+
		"than %v the machine was not too busy besides", had.Unbroken, had.Undisturbed)
	s.found[len(s.found)-1].Open = had.Unbroken > LongestIdle
}
