package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Checks of what nodes and clients said to each other, by the rules of the model in
// models/fencing.pml, so that model and code cannot drift apart. Only calls that were answered
// count: others may or may not have had an effect.

const (
	whole = "all"
	held  = "held"
)

// acknowledged: a majority has acknowledged the token of each completed acquisition. A node does so
// if it grants just that token, or raises its own to at least that token while the acquisition
// still has the key.
func acknowledged(run *history.Run, rules Rules) (found []Finding) {
	type claim struct{ key, owner string }
	acks := make(map[claim][]history.Record)
	for _, c := range run.Calls {
		if c.Target != whole && c.Outcome == held && drew(c) {
			acks[claim{c.Key, c.Owner}] = append(acks[claim{c.Key, c.Owner}], c)
		}
	}
	for _, c := range run.Calls {
		if c.Target != whole || c.Outcome != held || !drew(c) {
			continue
		}
		nodes := make(map[string]bool)
		for _, a := range acks[claim{c.Key, c.Owner}] {
			if a.Until <= c.Until && (a.Token == c.Token || a.Name == history.Renew &&
				a.Token >= c.Token) {
				nodes[a.Target] = true
			}
		}
		servers := cmp.Or(run.Sets[c.Client], rules.Nodes)
		if len(nodes) < majority(servers) {
			found = append(found, Finding{Check: "acknowledged", Key: c.Key, At: c.Until,
				Text: fmt.Sprintf(
					"%s was given token %d by %s, which %d of %d servers have acknowledged",
					c.Owner, c.Token, c.Name, len(nodes), servers)})
		}
	}
	return found
}

// rising: until a node forgets, it grants no token twice, and a grant that was asked for after
// another was answered has larger tokens.
func rising(run *history.Run, rules Rules) (found []Finding) {
	each(run, rules, func(node, key string, calls []history.Record) {
		answered := slices.SortedFunc(slices.Values(calls), func(a, b history.Record) int {
			return cmp.Compare(a.Until, b.Until)
		})
		owners := make(map[uint64]string)
		var largest history.Record // of the grants answered before
		before := 0
		for _, c := range calls {
			if !drew(c) || c.Outcome != held {
				continue
			}
			if other, twice := owners[c.Token]; twice && other != c.Owner {
				found = append(found, Finding{Check: "rising", Key: key, At: c.Until,
					Text: fmt.Sprintf("%s granted token %d to %s and to %s", node, c.Token, other,
						c.Owner)})
			}
			owners[c.Token] = c.Owner
			for ; before < len(answered) && answered[before].Until < c.At; before++ {
				if a := answered[before]; drew(a) && a.Outcome == held && last(a) > last(largest) {
					largest = a
				}
			}
			// A notice tells of a grant that was made some time before.
			if c.Name != history.Notice && largest.Token != 0 && c.Token <= last(largest) {
				found = append(found, Finding{Check: "rising", Key: key, At: c.Until,
					Text: fmt.Sprintf("%s granted %d to %s, and before that up to %d to %s", node,
						c.Token, c.Owner, last(largest), largest.Owner)})
			}
		}
	})
	return found
}

// sole: at one node, one owner at a time has a key, or several share it, from the node's answer
// until the lease ends or the owner releases it. It does not hold for a node that forgets or breaks
// an assumption.
func sole(run *history.Run, rules Rules) (found []Finding) {
	unseen := unseenDowngrades(run)
	each(run, rules, func(node, key string, calls []history.Record) {
		leases := withoutUndone(leasesOf(calls, unseen), calls)
		slices.SortFunc(leases, func(a, b lease) int { return cmp.Compare(a.from, b.from) })
		var longest, shared lease // so far, of owners that have it alone and of those that share it
		for _, s := range leases {
			other := longest
			if !s.shared && shared.to > longest.to && shared.owner != s.owner {
				other = shared
			}
			if s.from < other.to && s.owner != other.owner {
				found = append(found, Finding{Check: "sole", Key: key, At: s.from,
					Text: fmt.Sprintf("%s had the key for %s and for %s", node, other.owner,
						s.owner)})
			}
			if s.shared && s.to > shared.to {
				shared = s
			} else if !s.shared && s.to > longest.to {
				longest = s
			}
		}
	})
	return found
}

// lease is one that a node has said it has given.
type lease struct {
	owner    string
	shared   bool
	asked    int64 // when the server was asked
	from, to int64 // from when it has answered until the lease is over
}

// leasesOf returns those of one node and key. An owner that has asked to share its key may share it
// from then on, and does not have it alone any more. If that request is not among the calls, it may
// be in unseen.
func leasesOf(calls []history.Record, unseen map[string]int64) (leases []lease) {
	ends := make(map[string][]history.Record) // by owner, what may have ended a lease
	for _, c := range calls {
		if c.Ends() {
			ends[c.Owner] = append(ends[c.Owner], c)
		}
	}
	lowered := loweredBy(calls, unseen)
	for _, c := range calls {
		if c.Outcome != held || c.TTL == 0 || c.Ends() {
			continue
		}
		s := lease{owner: c.Owner, asked: c.At, from: c.Until, to: c.At + c.TTL - c.TTL/100}
		for _, end := range ends[c.Owner] {
			// One that was not answered may take effect whenever it likes.
			if end.Until >= c.At || end.Outcome == history.Failed {
				s.to = min(s.to, end.At)
			}
		}
		if at, ok := lowered[c.Owner]; ok && at < s.to {
			leases = append(leases, lease{s.owner, true, s.asked, max(s.from, at), s.to})
			s.to = at
		}
		leases = append(leases, s)
	}
	return slices.DeleteFunc(leases, func(s lease) bool { return s.from >= s.to })
}

// unseenDowngrades returns, by owner value, when processes began a Downgrade in which they were
// killed. A renewal is recorded with its answer, so a server may have done one of which nothing is
// known.
func unseenDowngrades(run *history.Run) map[string]int64 {
	unseen := make(map[string]int64)
	for _, a := range run.Acquisitions {
		if a.Lower == 0 || a.Lowered != 0 || !a.Died() {
			continue
		}
		for _, c := range run.CallsOf(a.Client, a.Key) {
			if drew(c) && c.Outcome == held && c.Token <= a.Token && a.Token <= last(c) {
				unseen[c.Owner] = a.Lower
			}
		}
	}
	return unseen
}

// downgrades: a Downgrade that returned without an error was confirmed: the backend has shared the
// key for this process meanwhile.
func downgrades(run *history.Run, rules Rules) (found []Finding) {
	type clientKey struct{ client, key string }
	confirmed := make(map[clientKey][]history.Record)
	for _, c := range run.Calls {
		if c.Name == history.Renew && c.Shared && c.Outcome == held &&
			(c.Target == whole) == (rules.Nodes > 1) {
			by := clientKey{c.Client, c.Key}
			confirmed[by] = append(confirmed[by], c)
		}
	}
	for _, a := range run.Acquisitions {
		if a.Lowered == 0 {
			continue
		}
		if !slices.ContainsFunc(confirmed[clientKey{a.Client, a.Key}], func(c history.Record) bool {
			return c.At >= a.Lower && c.Until <= a.Lowered
		}) {
			found = append(found, Finding{Check: "downgrades", Key: a.Key, At: a.Lowered,
				Text: fmt.Sprintf("%v was downgraded, and nobody has confirmed that", a)})
		}
	}
	return found
}

// owners: no owner value comes up twice, for another key or in another process. Only the random
// part counts, because a process ID may come up again.
func owners(run *history.Run, _ Rules) (found []Finding) {
	first := make(map[string]history.Record)
	for _, c := range run.Calls {
		if c.Name == history.Notice || c.Target == whole {
			continue
		}
		id, _, _ := strings.Cut(c.Owner, "/")
		if other, known := first[id]; !known {
			first[id] = c
		} else if other.Client != c.Client || other.Key != c.Key {
			found = append(found, Finding{Check: "owners", Key: c.Key, At: c.At,
				Text: fmt.Sprintf("%s asked as %s, and %s had asked so for %s", c.Client, c.Owner,
					other.Client, other.Key)})
		}
	}
	return found
}

// loweredBy returns for each owner when it first asked to share the key, or may have.
func loweredBy(calls []history.Record, unseen map[string]int64) map[string]int64 {
	lowered := make(map[string]int64)
	lower := func(owner string, from int64) {
		if at, ok := lowered[owner]; !ok || from < at {
			lowered[owner] = from
		}
	}
	for _, c := range calls {
		if c.Shared {
			lower(c.Owner, c.At)
		}
		if at, ok := unseen[c.Owner]; ok {
			lower(c.Owner, at)
		}
	}
	return lowered
}

// withoutUndone ends leases when their owners asked again without success: a client takes back what
// a node in quarantine has granted, and that is not a call of its own.
func withoutUndone(leases []lease, calls []history.Record) []lease {
	again := make(map[string][]history.Record) // by owner
	for _, c := range calls {
		if c.Name == history.Acquire && c.Outcome == history.Failed {
			again[c.Owner] = append(again[c.Owner], c)
		}
	}
	for i := range leases {
		for _, c := range again[leases[i].owner] {
			if c.Until >= leases[i].asked {
				leases[i].to = min(leases[i].to, c.At)
			}
		}
	}
	return slices.DeleteFunc(leases, func(s lease) bool { return s.from >= s.to })
}

// drew reports whether the call asked for tokens.
func drew(c history.Record) bool {
	return c.Name == history.Acquire || c.Name == history.Notice || c.Name == history.Renew &&
		c.Block > 0
}

// last returns the last token of a grant.
func last(c history.Record) uint64 { return c.Token + max(c.Block, 1) - 1 }

// each calls f with the calls of each node and key, in the order in which they began, in parts. A
// new part begins when the node may have forgotten, or when an assumption was broken there. Calls
// during that are left out, except those that may end a lease. Such a call takes effect at any time
// from its beginning to its answer. So it is in each part that it reaches into, and in every later
// one if it was not answered.
func each(run *history.Run, rules Rules, f func(node, key string, calls []history.Record)) {
	type place struct{ node, key string }
	parts := make(map[place][]history.Record)
	var places []place
	for _, c := range run.Calls {
		if c.Target != whole {
			p := place{c.Target, c.Key}
			if parts[p] == nil {
				places = append(places, p)
			}
			parts[p] = append(parts[p], c)
		}
	}
	for _, p := range places {
		breaks := breaksOf(run, p.node, p.key)
		var part, open []history.Record
		for _, c := range parts[p] {
			for len(breaks) > 0 && breaks[0].Until < c.At {
				f(p.node, p.key, part)
				open = slices.DeleteFunc(open, func(end history.Record) bool {
					return end.Outcome != history.Failed && end.Until < breaks[0].At
				})
				part, breaks = slices.Clone(open), breaks[1:]
			}
			if c.Ends() {
				open = append(open, c)
				part = append(part, c)
				continue
			}
			if !slices.ContainsFunc(breaks, func(b history.Record) bool {
				return b.At <= c.Until+c.TTL && c.At <= b.Until
			}) {
				part = append(part, c)
			}
		}
		f(p.node, p.key, part)
	}
}

// breaksOf returns the faults after which a node may have forgotten a key, or which broke an
// assumption about the key there, in the order in which they ended.
func breaksOf(run *history.Run, node, key string) (breaks []history.Record) {
	for _, fault := range run.Faults {
		if (fault.Forget || fault.Breaks != "") && fault.Concerns(key) &&
			slices.Contains(strings.Fields(fault.Target), node) {
			breaks = append(breaks, fault)
		}
	}
	slices.SortFunc(breaks, func(a, b history.Record) int {
		return cmp.Compare(a.Until, b.Until)
	})
	return breaks
}
