package quorum

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A ticket is the time at which a claim began to wait, in microseconds, so that all nodes have the
// waiters in the same order. It is measured by the nodes' clocks: if it were measured by the
// client's own clock, a client that is ahead would be served last. Each node tells its clock in its
// answers to waiters, which shows how far it is ahead of the lease clock of this process. The
// median of these differences makes the ticket.
//
// A client counts a clock as read when the answer came, so a slow request, for example on a new
// connection, does not make tickets late. If the nodes' clocks agree, no ticket is later than it
// should be. It is early by the time that answers take, and by a hundredth of the time since the
// reading. If clients have heard from different nodes, their tickets differ by as much as the
// clocks of these nodes do. A minority of nodes has no influence on a client that has heard from
// all.
//
// The first claim that waits comes before any such answer. It has no ticket, so each node gives it
// one by its own clock.

// maxTicketError is how much too late a ticket may be in order to keep the order within a process.
const maxTicketError = time.Second

// ticket returns the ticket of a claim that began to wait at began, or 0 if the nodes' clocks are
// not known yet. If some nodes do not tell their clocks, those that are known make it. If fewer
// nodes than a majority tell theirs, it is this machine's clock.
func (q *Quorum) ticket(began clock.Instant) uint64 {
	var ahead []int64
	silent := 0
	for _, n := range q.nodes {
		by, known, unknowable := n.Clock()
		if unknowable {
			silent++
		}
		if known {
			ahead = append(ahead, by)
		}
	}
	few := silent > len(q.nodes)-q.need // tell their clocks
	switch {
	case len(ahead) >= q.need, silent > 0 && !few && len(ahead) > 0:
		slices.Sort(ahead)
		return uint64(min(max(0, node.Microseconds(began)+ahead[len(ahead)/2]), maxSeen))
	case few:
		return q.config.microseconds() - uint64(
			node.Microseconds(clock.Now())-node.Microseconds(began))
	default:
		return 0
	}
}

// newTicket returns the ticket of a claim that begins to wait now, raised over the last one, so
// that waiters of one process are served in the order in which they came.
func (q *Quorum) newTicket(now clock.Instant) uint64 {
	for {
		ticket, last := q.ticket(now), q.lastTicket.Load()
		if ticket == 0 {
			return 0
		}
		if last >= ticket && last-ticket < uint64(maxTicketError/time.Microsecond) {
			ticket = last + 1
		}
		if q.lastTicket.CompareAndSwap(last, ticket) {
			return ticket
		}
	}
}

// placed notes that a node has placed a claim without a ticket by its own clock, so that later
// claims get places behind it. A clock that is far from the others does no harm; see newTicket.
func (q *Quorum) placed(clockShows uint64) {
	for {
		last := q.lastTicket.Load()
		if clockShows <= last || q.lastTicket.CompareAndSwap(last, clockShows) {
			return
		}
	}
}
