package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// permits: of a semaphore no more permits are valid at once than the largest number that anybody
// asked with, and nobody is granted a slot beyond the number that it asked with itself. In the end
// a probe has all of them at once. The checks of keys see that at most one holds a slot, and that
// the tokens of each slot rise: a slot is a key.
func permits(run *history.Run, rules Rules) (found []Finding) {
	for name, all := range semaphores(run) {
		found = append(found, tooMany(run, rules, name, all)...)
		found = append(found, together(run, name, all)...)
		for _, a := range all {
			if a.Granted != 0 && !slices.Contains(slots(name, a.Permits), a.Key) {
				found = append(found, Finding{Check: "permits", Key: name, At: a.Granted,
					Text: fmt.Sprintf("%v was granted %s, and asked for one of %d", a, a.Key,
						a.Permits)})
			}
		}
	}
	return found
}

// semaphores returns all acquisitions of permits, by semaphore.
func semaphores(run *history.Run) map[string][]*history.Acquisition {
	asked := make(map[string][]*history.Acquisition)
	for _, a := range run.Acquisitions {
		if a.Semaphore != "" {
			asked[a.Semaphore] = append(asked[a.Semaphore], a)
		}
	}
	return asked
}

// slots returns the keys of so many slots.
func slots(semaphore string, permits int) (keys []string) {
	for slot := range permits {
		keys = append(keys, history.SlotKey(semaphore, slot))
	}
	return keys
}

// known returns the smallest and the largest number of permits that anybody asked with.
func known(all []*history.Acquisition) (least, most int) {
	least, most = all[0].Permits, all[0].Permits
	for _, a := range all {
		least, most = min(least, a.Permits), max(most, a.Permits)
	}
	return least, most
}

// granted returns those of them that were granted, in the order of their grants.
func granted(all []*history.Acquisition) []*history.Acquisition {
	granted := slices.DeleteFunc(slices.Clone(all), func(a *history.Acquisition) bool {
		return a.Granted == 0
	})
	slices.SortFunc(granted, func(a, b *history.Acquisition) int {
		return cmp.Compare(a.Granted, b.Granted)
	})
	return granted
}

// atEachGrant calls f for each granted acquisition, with all that are valid then, itself included.
func atEachGrant(all []*history.Acquisition,
	f func(a *history.Acquisition, valid []*history.Acquisition)) {
	var valid []*history.Acquisition
	for _, a := range granted(all) {
		valid = slices.DeleteFunc(valid, func(other *history.Acquisition) bool {
			return other.End() <= a.Granted
		})
		valid = append(valid, a)
		f(a, valid)
	}
}

// tooMany finds each grant after which there were too many permits. If there are too many only
// because slots were held twice, each time with an excuse, that is an excuse.
func tooMany(run *history.Run, rules Rules, name string,
	all []*history.Acquisition) (found []Finding) {
	_, most := known(all)
	atEachGrant(all, func(a *history.Acquisition, valid []*history.Acquisition) {
		if len(valid) <= most {
			return
		}
		f := Finding{Check: "permits", Key: name, At: a.Granted,
			Text: fmt.Sprintf("%d permits were valid when %s was granted %s, of %d", len(valid),
				described(a), a.Key, most)}
		excused := make(map[*history.Acquisition]bool)
		for _, p := range overlaps(valid) {
			if p.first.Key != p.second.Key || excused[p.second] {
				continue
			}
			if why, where := excuse(run, rules, p.first, p.second); why != "" {
				f.Excuse, f.Because, excused[p.second] = why, where, true
			}
		}
		if len(valid)-len(excused) > most {
			f.Excuse, f.Because = "", ""
		}
		found = append(found, f)
	})
	return found
}

// together finds that no probe has had all permits at once. liveness says why a probe was not
// granted a permit.
func together(run *history.Run, name string, all []*history.Acquisition) (found []Finding) {
	_, most := known(all)
	probes := slices.DeleteFunc(slices.Clone(all), func(a *history.Acquisition) bool {
		return !IsProbe(a)
	})
	if len(probes) >= most && len(granted(probes)) < len(probes) {
		return nil
	}
	had := 0
	atEachGrant(probes, func(_ *history.Acquisition, valid []*history.Acquisition) {
		had = max(had, len(valid))
	})
	if had < most {
		found = append(found, Finding{Check: "permits", Key: name, At: run.End,
			Text: fmt.Sprintf("a probe had %d permits at once when the faults were over, of %d",
				had, most)})
	}
	return found
}

// idlePermits finds acquisitions that waited long for a permit while one was free and nothing was
// broken. Only slots that all processes know count, because a process that knows no others may be
// first in the queue.
func idlePermits(run *history.Run, rules Rules) (found []Finding) {
	for name, all := range semaphores(run) {
		least, _ := known(all)
		full := taken(run, all, slots(name, least))
		disturbed := disturbed(run, rules, name)
		for _, a := range all {
			if waited(a) <= longestIdle || IsProbe(a) {
				continue
			}
			if long, ok := lengthy(run, a, full, disturbed); ok {
				found = append(found, Finding{Check: "idle", Key: name, At: long.from,
					Text: fmt.Sprintf("%v waited for %v while one of %d permits was free and nothing "+
						"was broken", a, time.Duration(long.to-long.from), least)})
			}
		}
	}
	return found
}

// keptPermits finds each process that has kept a slot for long, as servers say, although nobody in
// it had the permit and nothing was broken.
func keptPermits(run *history.Run, rules Rules) (found []Finding) {
	for name, all := range semaphores(run) {
		_, most := known(all)
		disturbed := disturbed(run, rules, name)
		for _, client := range clients(run) {
			for _, key := range slots(name, most) {
				without := [][]span{unclaimed(run, rules, client, key), disturbed}
				for _, a := range all {
					if a.Client == client && a.Key == key && a.Granted != 0 {
						without = append(without, []span{{a.Granted, max(freed(a), a.Released)}})
					}
				}
				for _, kept := range quiet(span{run.Start, run.End}, without...) {
					if length(quiet(kept, starved(run, client))) > longestIdle {
						found = append(found, Finding{Check: "idle", Key: key, At: kept.from,
							Text: fmt.Sprintf("%s kept it for %v while nobody there had it and "+
								"nothing was broken", client, time.Duration(kept.to-kept.from))})
					}
				}
			}
		}
	}
	return found
}

// clients returns all processes that asked for anything.
func clients(run *history.Run) (names []string) {
	for _, a := range run.Acquisitions {
		if !slices.Contains(names, a.Client) {
			names = append(names, a.Client)
		}
	}
	return names
}

// unclaimed returns the spans in which a process has no lease of the key, as servers say.
func unclaimed(run *history.Run, rules Rules, client, key string) []span {
	calls := slices.DeleteFunc(run.CallsOf(client, key), func(c history.Record) bool {
		return (c.Target == whole) != (rules.Nodes > 1)
	})
	var claimed []span
	for _, l := range leasesOf(noticed(calls), nil) {
		claimed = append(claimed, span{l.asked, l.to})
	}
	return quiet(span{run.Start, run.End}, claimed)
}

// taken returns the spans in which none of the slots was free.
func taken(run *history.Run, all []*history.Acquisition, slots []string) []span {
	whole := span{run.Start, run.End}
	var free [][]span
	for _, key := range slots {
		var held []span
		for _, a := range all {
			if a.Granted != 0 && a.Key == key {
				held = append(held, span{a.Granted, freed(a)})
			}
		}
		free = append(free, quiet(whole, held))
	}
	return quiet(whole, free...)
}
