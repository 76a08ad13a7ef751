package quorum

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A ticket is when a claim began to wait, in microseconds, so that all nodes have waiters in one
// order. It counts by the nodes' clocks. By its own clock a client that is ahead would be served
// last. Each node says in its answers to waiters what its clock shows, and so how far that is ahead
// of the lease clock of this process. The median of these makes the ticket. A client takes the
// clock as read when the answer came, so a slow request, on a new connection for example, makes no
// ticket late. If the nodes' clocks agree, no ticket is later than it should be. It is early by the
// time that answers take, and by the hundredth part of the time since the reading. Tickets of
// clients that have heard different majorities differ by what those nodes' clocks differ, and no
// minority has a say in that.
//
// The first claim that waits comes before any such answer. It has no ticket, and each node gives it
// one by its own clock.

// maxTicketError is how much too late a ticket may be, to keep the order within a process.
const maxTicketError = time.Second

// ticket returns the ticket of a claim that began to wait at began, or 0 if the nodes' clocks are
// not known yet. If nodes do not tell their clocks, it is this machine's clock.
func (q *Quorum) ticket(began clock.Instant) uint64 {
	var ahead []int64
	silent := false
	for _, n := range q.nodes {
		by, known, unknowable := n.Clock()
		silent = silent || unknowable
		if known {
			ahead = append(ahead, by)
		}
	}
	switch {
	case len(ahead) >= q.need:
		slices.Sort(ahead)
		return uint64(min(max(0, node.Microseconds(began)+ahead[len(ahead)/2]), maxSeen))
	case silent:
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

// placed notes that a claim without a ticket has a place by a node's clock, so that later claims
// get places behind it. A node's clock that is far from the others' does no harm, see newTicket.
func (q *Quorum) placed(clockShows uint64) {
	for {
		last := q.lastTicket.Load()
		if clockShows <= last || q.lastTicket.CompareAndSwap(last, clockShows) {
			return
		}
	}
}
