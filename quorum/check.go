package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Check examines the set of nodes, and each node that implements driver.Checker. A finding about a
// node has its name. A node that has not answered when two thirds of the time of ctx are over is a
// finding, however many do not. Check fails only if ctx ends before that and before a majority of
// the nodes has answered.
//
// Codes of its own: few-nodes, even-nodes, no-quarantine, same-server, node-failed, nodes (see
// [Status.Warnings], and for a node that belongs to another set), not-checked, round-trip.
func (q *Quorum) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	findings := q.checkShape()
	third, cancel := timeOf(ctx, 3)
	defer cancel()
	if err := q.identify(third); err != nil {
		findings = append(findings, driver.Finding{
			Severity: driver.Failure, Code: "same-server",
			Summary: strings.ReplaceAll(err.Error(), "\n", "; ") + ".",
			Advice:  "List every server once.",
		})
	}
	half, cancel := timeOf(ctx, 2)
	defer cancel()
	replies := gather(half, q, everybody(q.examine))
	status := q.Status()
	good := 0
	for i, r := range replies {
		name := q.nodes[i].Name
		if r.err != nil {
			findings = append(findings, driver.Finding{
				Severity: driver.Failure, Code: "node-failed", Node: name,
				Summary: fmt.Sprintf("The node could not be examined: %v.", r.err),
				Advice:  "Bring it back: every node that is missing makes the next failure more likely to stop all locking.",
			})
			continue
		}
		good++
		for _, f := range r.value.findings {
			f.Node = cmp.Or(f.Node, name)
			findings = append(findings, f)
		}
		findings = append(findings, q.checkSet(&status.Nodes[i], r.value)...)
		findings = append(findings, q.checkTrip(name, r.value.trip)...)
	}
	if err := ctx.Err(); err != nil && good < q.need {
		return nil, unanswered(err)
	}
	for _, line := range status.Warnings() {
		findings = append(findings, misfit(line))
	}
	slices.SortStableFunc(findings, func(a, b driver.Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
	return findings, nil
}

// timeOf returns a context that ends with ctx, and when an nth part of the time that is left is
// over.
func timeOf(ctx context.Context, n time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, deadline.Sub(clock.In(0))/n)
	}
	return context.WithCancel(ctx)
}

// examined is what one node says when it is examined.
type examined struct {
	findings []driver.Finding
	set      driver.Set // that it belongs to; zero if it has none, or remembers none
	err      error      // why it did not say which

	trip time.Duration // the shortest call; 0 if none was measured
}

// trips is how many calls are measured at most. One may be slow by chance.
const trips = 5

// examine asks one node.
func (q *Quorum) examine(ctx context.Context, n *node.Node) (e examined, err error) {
	if c, ok := n.Backend.(driver.Checker); ok {
		if e.findings, err = c.Check(ctx); err != nil {
			return e, err
		}
	}
	if m, ok := n.Backend.(driver.Member); ok {
		for range trips {
			start := clock.Now()
			e.set, e.err = m.Belongs(ctx)
			if e.err != nil {
				e.trip = 0
				break
			}
			if trip := clock.Now().Sub(start); e.trip == 0 || trip < e.trip {
				e.trip = trip
			}
			if !q.slow(e.trip) {
				break
			}
		}
	}
	return e, nil
}

// slow reports whether a call takes more than a third of what a node has time for.
func (q *Quorum) slow(trip time.Duration) bool { return 3*trip > q.config.bound(0) }

// checkTrip returns a finding if the node is so far away that a hiccup makes calls to it fail.
func (q *Quorum) checkTrip(name string, trip time.Duration) []driver.Finding {
	if !q.slow(trip) {
		return nil
	}
	finding := driver.Finding{
		Severity: driver.Warning, Code: "round-trip", Node: name,
		Summary: fmt.Sprintf("A call takes %v, and the node timeout is %v: a little more, and the node has no vote.",
			trip.Round(100*time.Microsecond), q.config.bound(0)),
		Advice: "Raise the node timeout to several times that, or move the server nearer.",
	}
	return []driver.Finding{finding}
}

// checkSet returns a finding if the node belongs to another set. A client that has not asked the
// node for a lock cannot learn this elsewhere.
func (q *Quorum) checkSet(n *NodeStatus, e examined) []driver.Finding {
	switch {
	case errors.Is(e.err, driver.ErrNoSet):
		finding := driver.Finding{
			Severity: driver.Warning, Code: "nodes", Node: n.Name,
			Summary: fmt.Sprintf("The node has no vote: %v.", e.err),
			Advice:  "Somebody has overwritten what it remembers of its set: delete that.",
		}
		return []driver.Finding{finding}
	case e.err != nil:
		finding := driver.Finding{
			Severity: driver.Note, Code: "not-checked", Node: n.Name,
			Summary: fmt.Sprintf("Which set the node belongs to could not be read: %v.", e.err),
			Advice:  "Allow to read the keys under holdfast: to see it.",
		}
		return []driver.Finding{finding}
	case e.set == (driver.Set{}) || e.set.Admits(q.Set()),
		n.State == Refusing && errors.As(n.Err, new(*driver.SetError)): // one of the warnings
		return nil
	}
	finding := misfit(fmt.Sprintf("The node refuses, as %v",
		&driver.SetError{Want: q.Set(), Have: e.set}))
	finding.Node = n.Name
	return []driver.Finding{finding}
}

// misfit returns the finding about a node that has no vote, or is unlike the others.
func misfit(line string) driver.Finding {
	return driver.Finding{
		Severity: driver.Warning, Code: "nodes", Summary: line + ".",
		Advice: "Mend it: a node without a vote, or one that behaves otherwise, does not help when another one fails.",
	}
}

// checkShape returns the findings that need no answer of a node.
func (q *Quorum) checkShape() (findings []driver.Finding) {
	n := len(q.nodes)
	switch {
	case n < 3:
		findings = append(findings, driver.Finding{
			Severity: driver.Warning, Code: "few-nodes",
			Summary: fmt.Sprintf("%d nodes need all of them for a majority: no node may fail.", n),
			Advice:  "Use 3 nodes to tolerate the failure of one, or 5 for two.",
		})
	case n%2 == 0:
		findings = append(findings, driver.Finding{
			Severity: driver.Note, Code: "even-nodes",
			Summary: fmt.Sprintf("%d nodes tolerate no more failures than %d.", n, n-1),
			Advice:  "Use an odd number of nodes.",
		})
	}
	if q.config.guard == 0 {
		findings = append(findings, driver.Finding{
			Severity: driver.Warning, Code: "no-quarantine",
			Summary: "The restart quarantine is off: a node that restarts without its data can grant a lock that is still held.",
			Advice:  "Set a guard, or make sure that no node loses data in a restart.",
		})
		return findings
	}
	for _, n := range q.nodes {
		if _, ok := n.Backend.(driver.Guarder); !ok {
			findings = append(findings, driver.Finding{
				Severity: driver.Note, Code: "no-quarantine", Node: n.Name,
				Summary: "The node's backend knows no restart quarantine.",
				Advice:  "Make sure that it keeps its data in a restart.",
			})
		}
	}
	return findings
}
