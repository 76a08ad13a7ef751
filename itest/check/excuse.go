package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/itest/history"
)

// excuse names the broken assumption that explains why two acquisitions of one key were both valid,
// and tells where and when it was broken; both are empty if none does. The answers of servers
// count: a server that granted the key twice explains it, if an assumption was broken there, on
// that key, between the two answers. If a server granted it twice and kept every assumption,
// nothing that was broken elsewhere is an excuse: of several servers, a majority that keeps its
// word is enough. If no server has granted it twice, the clients are wrong.
func excuse(run *history.Run, rules Rules, a, b *history.Acquisition) (reason, because string) {
	first, second := leasesFor(run, rules, a), leasesFor(run, rules, b)
	to := max(a.Granted, b.Granted)
	var all []string
	for _, server := range slices.Sorted(maps.Keys(first)) {
		why, where, excused := twice(run, server, a.Key, first[server], second[server], to)
		if !excused {
			return "", ""
		}
		if why != "" {
			reason, all = cmp.Or(reason, why), append(all, where)
		}
	}
	return reason, strings.Join(all, "; ")
}

// twice looks for what explains that a server has granted the key for both of two acquisitions by
// the moment. It reports whether everything that the server surely did is explained.
func twice(run *history.Run, server, key string, first, second []lease,
	to int64) (reason, where string, excused bool) {
	for _, x := range first {
		for _, y := range second {
			answered := max(x.from, y.from)
			if x.shared && y.shared || answered > to ||
				max(x.asked, y.asked) >= min(x.to, y.to) {
				continue
			}
			between := span{min(x.asked, y.asked), answered}
			f, broken := brokenAt(run, server, key, between)
			switch {
			case broken && reason == "":
				reason, where = f.Breaks, fmt.Sprintf(
					"%s granted %s to %s and to %s between %.3f s and %.3f s, %s from %.3f s to %.3f s",
					server, key, x.owner, y.owner, history.Seconds(between.from, run.Start),
					history.Seconds(between.to, run.Start), f.Name,
					history.Seconds(f.At, run.Start), history.Seconds(f.Until, run.Start))
			case !broken && answered < min(x.to, y.to):
				return "", "", false
			}
		}
	}
	return reason, where, true
}

// brokenAt gives the first fault that broke an assumption at the server, on the key, at that time.
func brokenAt(run *history.Run, server, key string, at span) (fault history.Record, broken bool) {
	for _, f := range run.Faults {
		if f.Breaks != "" && f.Concerns(key) && f.At <= at.to && f.Until >= at.from &&
			slices.Contains(strings.Fields(f.Target), server) {
			return f, true
		}
	}
	return history.Record{}, false
}

// leasesFor returns the leases that servers have given for an acquisition, by server: those of the
// owner value whose grant had the acquisition's token.
func leasesFor(run *history.Run, rules Rules, a *history.Acquisition) map[string][]lease {
	said := run.CallsOf(a.Client, a.Key)
	var owners []string
	for _, c := range said {
		if drew(c) && c.Outcome == held && (c.Target == whole) == (rules.Nodes > 1) &&
			c.Token <= a.Token && a.Token <= last(c) {
			owners = append(owners, c.Owner)
		}
	}
	calls := make(map[string][]history.Record)
	for _, c := range said {
		if c.Target != whole && slices.Contains(owners, c.Owner) {
			calls[c.Target] = append(calls[c.Target], c)
		}
	}
	leases := make(map[string][]lease)
	for server, calls := range calls {
		leases[server] = leasesOf(noticed(calls), nil)
	}
	return leases
}

// noticed makes each notice of a grant the answer to the last question that had an answer before
// it, or to the first question if none had: the key was granted at some time since then, for the
// length that was asked for.
func noticed(calls []history.Record) []history.Record {
	calls = slices.Clone(calls)
	for i, c := range calls {
		if c.Name != history.Notice {
			continue
		}
		for _, asked := range slices.Backward(calls[:i]) {
			if asked.Name != history.Acquire || asked.Owner != c.Owner {
				continue
			}
			calls[i].At, calls[i].TTL = asked.At, c.At-asked.At+asked.TTL
			if asked.Outcome != history.Failed && asked.Until <= c.At {
				break
			}
		}
	}
	return calls
}

// leased returns when the lease of an acquisition may have begun: with an earlier acquisition of
// its process that was under way when it was asked for, and that passed its lease, or its place in
// the queue, on to it.
func leased(run *history.Run, a *history.Acquisition) int64 {
	from := a.Asked
	for i := len(run.Acquisitions) - 1; i >= 0; i-- { // in the order in which they were asked for
		other := run.Acquisitions[i]
		if other.Client == a.Client && other.Key == a.Key && other.Asked < from &&
			over(other) >= from {
			from = other.Asked
		}
	}
	return from
}

// over returns when nothing was left of an acquisition in its own process.
func over(a *history.Acquisition) int64 {
	if a.Granted == 0 {
		return a.Refused
	}
	return max(a.End(), a.Released)
}

func majority(servers int) int { return max(1, servers)/2 + 1 }

// slot returns the name of a client, whatever process it is in.
func slot(client string) string {
	name, _, _ := strings.Cut(client, ".")
	return name
}
