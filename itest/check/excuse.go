package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/itest/history"
)

// excuse names the broken assumption that explains why two acquisitions of one key were both valid;
// it is empty if none does. One does if it was broken while one of their leases was there and, over
// several servers, at so many of them that they could be granted twice: a majority is needed that
// each either broke the assumption or need not have known of the lease, since something was wrong
// with it or with its network. One clock that jumps explains nothing while the other servers can
// object.
func excuse(run *history.Run, rules Rules, a, b *history.Acquisition) (reason string) {
	from, to := min(leased(run, a), leased(run, b)), max(a.Granted, b.Granted)
	// What a server missed is made good by a renewal, which takes less than a lease, once it takes
	// part again.
	aftermath := int64(rules.TTL + rules.Guard)
	doubtful := make(map[string]bool)
	for _, f := range run.Faults {
		if !f.Concerns(a.Key) || f.At > to || f.Until+aftermath < from {
			continue
		}
		for _, server := range rules.hit(f, a, b) {
			doubtful[server] = true
			if f.Until >= from {
				reason = cmp.Or(reason, f.Breaks)
			}
		}
	}
	if len(doubtful) < majority(rules.Nodes) {
		return ""
	}
	return reason
}

// leased is when the lease of an acquisition may have begun: with one of its own process that was
// under way when it was asked for, and that passed its lease, or its place in the queue, on to it.
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

// over is when nothing was left of an acquisition in its own process.
func over(a *history.Acquisition) int64 {
	if a.Granted == 0 {
		return a.Refused
	}
	return max(a.End(), a.Released)
}

// hit are the servers that the fault concerns, as the two acquisitions' clients could see it. A
// target of a fault is a server, a client, which means all of its servers, or a client and a
// server.
func (r Rules) hit(f history.Record, a, b *history.Acquisition) (servers []string) {
	for target := range strings.FieldsSeq(f.Target) {
		client, server, one := strings.Cut(target, "-")
		for _, s := range r.servers() {
			concerned := client == slot(a.Client) || client == slot(b.Client)
			if target == s || concerned && (!one || server == s) {
				servers = append(servers, s)
			}
		}
	}
	return servers
}

// servers are the names of those that vote.
func (r Rules) servers() (names []string) {
	for i := range max(1, r.Nodes) {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	return names
}

func majority(servers int) int { return max(1, servers)/2 + 1 }

// slot is the name of a client whatever process it is in.
func slot(client string) string {
	name, _, _ := strings.Cut(client, ".")
	return name
}
