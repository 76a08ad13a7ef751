package quorum

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Two majorities have a node in common only if they are majorities of the same nodes. So nodes that
// implement driver.Member remember which set they belong to, and refuse clients that are configured
// for another one. [Quorum.Adopt] says what the operator has to do.

// ErrSetInUse says that nodes cannot be moved to another set: the rest of their present set could
// go on without them. See [Quorum.Adopt].
var ErrSetInUse = errors.New("set of nodes in use")

// Set returns the set that all clients of these nodes must agree on. It asks no node.
func (q *Quorum) Set() driver.Set {
	return driver.Set{Nodes: len(q.nodes), Quorum: q.need,
		Guard: q.config.guard.Truncate(time.Millisecond), Name: q.config.set}
}

// join puts the nodes' claims under their set.
func (q *Quorum) join() {
	for _, n := range q.nodes {
		if m, ok := n.Backend.(driver.Member); ok {
			m.Join(q.Set())
		}
	}
}

// Adopt moves the nodes to the set of this Quorum: its name (see [WithSet]), the number of nodes,
// and the guard. An operator calls it once, when one of these has changed, on a Quorum that is
// configured as all clients will be from then on. It is safe while clients of the old set work.
// First the nodes refuse these clients. Then Adopt waits until their leases have ended, for the
// guard of the old set and driver.SetFresh. Only then do the nodes take part again, for clients of
// the new set. Meanwhile nothing can be locked. longest is the longest TTL that clients of the old
// set use; it matters only if the old set has no guard.
//
// Every node has to answer. The nodes of the old set that are left out must not make a majority of
// it, so it takes two steps to go from 7 nodes to 3. Otherwise Adopt fails with [ErrSetInUse], and
// nothing has changed. It cannot notice an old set of which no node is left: then both sets grant
// locks. If two nodes are one server, Adopt fails with [ErrSameServer], and nothing has changed. A
// node that no client has reached yet remembers no set. It counts as left out, unless the old set
// has the same name and number of nodes. Shut down the nodes that are left out: together with a
// node that forgets, they could make a majority of the old set again. If the old set has no guard
// and longest is 0, Adopt fails with driver.ErrInvalid, and nothing has changed.
//
// Adopt is also safe while another call of Adopt runs, to whatever set. If the other call has moved
// a node between two steps of this one, Adopt fails with driver.ErrUnknown and names the node. So
// at most one of them finishes. No node takes part for the new set before all nodes are ready to.
//
// If Adopt fails for another reason, or ctx ends, some nodes may refuse all clients. Until all
// nodes have been moved, they remember the set that they came from. So call Adopt again, on a
// Quorum with one of the following sets. It waits again if leases may be left.
//
//   - The same set, to finish the move.
//   - The old set, to undo the move, or a third set. If the move was broken off after its wait,
//     Adopt may refuse this with ErrSetInUse: nodes do not know which other nodes are in their set,
//     so Adopt succeeds only if the nodes that are not known to be in the new set do not make a
//     majority of it. If it refuses, finish the move to the new set first, and then move the nodes
//     again.
//
// Adopt also moves nodes whose first client had a mistyped guard, but the right name and number of
// nodes. In the following cases it cannot help and fails with ErrSetInUse. The error names the
// nodes that belong to another set.
//
//   - Nodes of the old set have lost their data. They join it again when a client of that set asks
//     them after the guard, which begins when one asks them first.
//   - A node was left out of a set earlier, came back with older data, or its first client had a
//     wrong set. If no client of that set is left, empty the node. Without a guard, wait for the
//     longest TTL first.
//   - Two moves to sets of different names were broken off one after the other, or a majority of
//     the old set is gone for good. Shut all clients down, wait for the longest guard, and empty
//     the nodes (on Redis it is enough to delete the key holdfast:s).
//
// Nodes that cannot remember a set stay as they are.
//
// A node that remembers no set, such as a new one, joins the set of the first client that asks. If
// fewer nodes of the new set than a majority are such nodes, clients of both sets may start in any
// order: the other nodes refuse clients of the new set until Adopt has moved them. If they are a
// majority, as in a move from 3 nodes to 7, start the first client of the new set when Adopt has
// succeeded. Adopt does not keep new nodes from clients while it waits for leases of the old set.
//
// Each node has a second for each step, or the node timeout if that is longer.
func (q *Quorum) Adopt(ctx context.Context, longest time.Duration) error {
	if err := q.ready(ctx); err != nil {
		return err
	}
	at, err := q.belong(ctx)
	if err != nil {
		return err
	}
	if err := q.distinct(ctx); err != nil {
		return err
	}
	wait, err := q.handover(at, longest)
	if err != nil {
		return err
	}
	a := adoption{q: q, id: rand.Text(), at: at}
	// First every node stops taking part for the old set.
	if err := a.step(ctx, a.leave); err != nil {
		return err
	}
	// Then the leases that it may have granted for the old set end.
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return unanswered(ctx.Err())
		case <-q.group.Context().Done():
			return node.Refused(errClosed, false)
		}
	}
	// Then, in one step after the other: look at all nodes again, ready them for the new set, have
	// them take part for it, and have them forget where they came from.
	for _, next := range []func(driver.Set) driver.Set{a.stay, a.ready, a.join, a.forget} {
		if err := a.step(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// adoption is an attempt to move nodes. Each step at a node compares the node's set with what the
// step before has left there, which has the mark of this attempt. So a node that has left its set
// stays out of it until it is ready for the new set, whatever other attempts do. When the first
// node takes part for the new set, all nodes tell other attempts that they belong to it.
type adoption struct {
	q  *Quorum
	id string
	at []driver.Set // what the nodes belong to
}

// leave has a node refuse all clients, unless it already takes part for the new set or has no set.
func (a *adoption) leave(set driver.Set) driver.Set {
	if !set.Admits(a.q.Set()) && set != (driver.Set{}) {
		set.Moving = a.id
	}
	return set
}

// stay changes nothing. It finds out whether a node was moved during the wait, while all nodes can
// still go back to their old set.
func (a *adoption) stay(set driver.Set) driver.Set { return set }

// ready puts a node into the new set, but does not have it take part yet.
func (a *adoption) ready(set driver.Set) driver.Set {
	want := a.q.Set()
	if set.Admits(want) {
		return set
	}
	if want.From = set.From; set.Plain() != want.Plain() {
		want.From = cmp.Or(set.From, set.Plain().Text())
	}
	want.Moving = a.id
	return want
}

// join has a node take part for the new set.
func (a *adoption) join(set driver.Set) driver.Set {
	set.Moving = ""
	return set
}

// forget has a node forget the set that it came from.
func (a *adoption) forget(set driver.Set) driver.Set { return set.Plain() }

// step moves each node from its set to the result of next. It fails if a node is not in its set any
// more. But a node without a set may have joined the new one.
func (a *adoption) step(ctx context.Context, next func(driver.Set) driver.Set) error {
	want := a.q.Set()
	for i, n := range a.q.nodes {
		m, ok := n.Backend.(driver.Member)
		if !ok {
			continue
		}
		from := a.at[i]
		to := next(from)
		ctx, cancel := context.WithTimeout(ctx, a.q.memberTimeout())
		now, err := m.Move(ctx, from, to)
		cancel()
		switch {
		case err != nil:
			return named(n, err)
		case now == to, now.Admits(want) && (from == driver.Set{} || from.Admits(want)):
			a.at[i] = now
		case now.Moving != "":
			return &driver.Error{Maybe: true,
				Err: fmt.Errorf("%s is being moved by another change of its set",
					n.Name)}
		case now == driver.Set{}:
			return &driver.Error{Maybe: true,
				Err: fmt.Errorf("%s has lost its data and knows of no set, not of %v", n.Name,
					from)}
		default:
			return &driver.Error{Maybe: true,
				Err: fmt.Errorf("%s now belongs to a set of %v, not to %v", n.Name, now,
					from)}
		}
	}
	return nil
}

// named returns an error of a node with the node's name in front. Many backends name it themselves.
func named(n *node.Node, err error) error {
	if strings.HasPrefix(err.Error(), n.Name+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", n.Name, err)
}

// memberTimeout bounds each question of Adopt to a node. One that is told to have longer to answer
// has as long here, too.
func (q *Quorum) memberTimeout() time.Duration {
	return max(q.config.timeout, node.IdentifyTimeout)
}

// belong asks every node which set it belongs to. Those that cannot remember one count as members.
func (q *Quorum) belong(ctx context.Context) ([]driver.Set, error) {
	have := make([]driver.Set, len(q.nodes))
	for i, n := range q.nodes {
		have[i] = q.Set()
		m, ok := n.Backend.(driver.Member)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, q.memberTimeout())
		set, err := m.Belongs(ctx)
		cancel()
		if err != nil {
			return nil, named(n, err)
		}
		have[i] = set
	}
	return have, nil
}

// distinct fails with ErrSameServer if two nodes are one server. New compares only those that
// answer it in time.
func (q *Quorum) distinct(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.memberTimeout())
	defer cancel()
	if err := q.identify(ctx); err != nil {
		return &driver.Error{Permanent: true, Err: err}
	}
	return nil
}

// handover returns for how long leases may still run that the nodes have granted for the sets they
// belong to. It fails with ErrSetInUse or ErrInvalid, as Adopt says.
func (q *Quorum) handover(have []driver.Set,
	longest time.Duration) (wait time.Duration, err error) {
	want := q.Set()
	for _, set := range have {
		if set.Admits(want) || set == (driver.Set{}) {
			continue
		}
		set = set.Plain()
		if left := q.left(set, have); set != want && left >= set.Quorum {
			return 0, &driver.Error{Permanent: true,
				Err: fmt.Errorf(
					"%w: nodes (%s) belong to a set of %v, and the %d that are not among these could go on without them%s",
					ErrSetInUse, q.those(set, have), set, left, q.others(set, have))}
		}
		lease := cmp.Or(set.Guard, longest)
		if lease <= 0 {
			return 0,
				forbidden(
					fmt.Errorf(
						"nodes belong to a set of %v, which allows any TTL: say which is the longest in use",
						set))
		}
		lease = min(lease, driver.MaxTTL) + driver.SetFresh // a longer one would overflow below
		wait = max(wait, lease+q.config.allowance(lease))
	}
	return wait, nil
}

// those lists the nodes that say that they are of the set, for an error.
func (q *Quorum) those(set driver.Set, have []driver.Set) string {
	var those []string
	for i, other := range have {
		if partOf(other, set) {
			those = append(those, q.nodes[i].Name)
		}
	}
	return strings.Join(those, ", ")
}

// others lists those of these nodes that do not say that they are of the set, for an error.
func (q *Quorum) others(set driver.Set, have []driver.Set) string {
	var others []string
	for i, other := range have {
		if !partOf(other, set) {
			others = append(others, fmt.Sprintf("%s: %v", q.nodes[i].Name, other))
		}
	}
	if others == nil {
		return ""
	}
	return " (" + strings.Join(others, "; ") + ")"
}

// partOf reports whether a node that belongs to have is one of the set, or was moved out of it.
func partOf(have, set driver.Set) bool { return have.Plain() == set || have.From == set.Text() }

// left returns how many nodes of the set may still work for it: those that are not among these, and
// were not moved out of it.
func (q *Quorum) left(set driver.Set, have []driver.Set) int {
	if set.Name != "" && set.Name == q.config.set && set.Nodes == len(have) {
		return 0 // these are all its nodes
	}
	left := set.Nodes
	for _, other := range have {
		if partOf(other, set) {
			left--
		}
	}
	return left
}

// disagreement returns the SetError in err, or nil if the node did not refuse for its set.
func disagreement(err error) *driver.SetError {
	var e *driver.SetError
	if err != nil && errors.As(err, &e) {
		return e
	}
	return nil
}
