package otelhold

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/quorum"
)

// followed are the Lockers and quorums that are looked at when metrics are collected.
type followed struct {
	lockers []*followedLocker
	quorums []*followedQuorum
}

type followedLocker struct {
	name   string
	locker *holdfast.Locker
}

type followedQuorum struct {
	name   string
	status func() quorum.Status
}

// nodeStates are the values of the attribute state.
var nodeStates = []quorum.NodeState{quorum.Unasked, quorum.Up, quorum.Down, quorum.Quarantined,
	quorum.Refusing, quorum.Duplicate}

// Follow adds what the Locker holds, and how many wait in it, to holdfast.held and holdfast.waiting
// with the attribute locker=name. Lockers with one name are added up. stop ends that; call it when
// the Locker ends. Calling stop again does nothing.
func (t *Telemetry) Follow(name string, locker *holdfast.Locker) (stop func()) {
	f := &followedLocker{strings.ToValidUTF8(name, "\uFFFD"), locker}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed.lockers = append(t.followed.lockers, f)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.followed.lockers = without(t.followed.lockers, f)
	}
}

// FollowNodes adds the state of the nodes of a quorum, for example of one that redlock.Open
// returned. status is its method Status. If status panics, collections go on without the nodes of
// this quorum. Of two quorums with one name the later one counts. stop ends that; calling it again
// does nothing.
func (t *Telemetry) FollowNodes(name string, status func() quorum.Status) (stop func()) {
	f := &followedQuorum{strings.ToValidUTF8(name, "\uFFFD"), status}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed.quorums = append(t.followed.quorums, f)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.followed.quorums = without(t.followed.quorums, f)
	}
}

// without returns a copy without the element: a collection may be reading the slice.
func without[E comparable](all []E, one E) (rest []E) {
	for _, e := range all {
		if e != one {
			rest = append(rest, e)
		}
	}
	return rest
}

// observe is called at each collection. Its cost depends on the number of Lockers and nodes, not on
// the number of locks. It asks no server.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	f := t.followed
	t.mu.Unlock()

	type now struct{ held, waiting int }
	byName := make(map[string]now)
	for _, l := range f.lockers {
		s, sum := l.locker.Stats(), byName[l.name]
		byName[l.name] = now{sum.held + s.Held, sum.waiting + s.Waiting}
	}
	for name, n := range byName {
		locker := metric.WithAttributes(attribute.String("locker", name))
		o.ObserveInt64(t.instruments.held, int64(n.held), locker)
		o.ObserveInt64(t.instruments.waiting, int64(n.waiting), locker)
	}

	quorums := make(map[string]func() quorum.Status)
	for _, q := range f.quorums {
		quorums[q.name] = q.status
	}
	for name, status := range quorums {
		t.observeQuorum(o, name, status)
	}
	return nil // an error would keep an exporter from all other metrics
}

// observeQuorum reports a panic of status in the way in which OpenTelemetry's libraries report
// errors. The goroutine is that of an exporter, so a panic would end the program.
func (t *Telemetry) observeQuorum(o metric.Observer, name string, status func() quorum.Status) {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("otelhold: the status of the quorum %q: panic: %v", name, p))
		}
	}()
	t.observeNodes(o, attribute.String("quorum", name), status())
}

func (t *Telemetry) observeNodes(o metric.Observer, name attribute.KeyValue,
	status quorum.Status) {
	i := &t.instruments
	o.ObserveInt64(i.needed, int64(status.Need), metric.WithAttributes(name))
	seen := make(map[string]bool) // sums would count a node twice
	for _, n := range status.Nodes {
		node := attribute.String("node", strings.ToValidUTF8(n.Name, "\uFFFD"))
		if seen[node.Value.AsString()] {
			continue
		}
		seen[node.Value.AsString()] = true
		for _, state := range nodeStates {
			is := int64(0)
			if n.State == state {
				is = 1
			}
			o.ObserveInt64(i.state, is, metric.WithAttributes(name, node,
				attribute.String("state", state.String())))
		}
		o.ObserveInt64(i.calls, int64(n.Pending), metric.WithAttributes(name, node))
		o.ObserveInt64(i.owed, int64(n.Owed), metric.WithAttributes(name, node))
	}
}
