package promhold

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

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

var (
	heldDesc = prometheus.NewDesc("holdfast_held", "Locks held now.", []string{"locker"}, nil)

	waitingDesc = prometheus.NewDesc("holdfast_waiting", "Calls that wait for a lock now.",
		[]string{"locker"}, nil)

	neededDesc = prometheus.NewDesc("holdfast_nodes_needed", "How many nodes make a majority.",
		[]string{"quorum"}, nil)

	stateDesc = prometheus.NewDesc("holdfast_node_state", "1 for the state that the node is in.",
		[]string{"quorum", "node", "state"}, nil)

	callsDesc = prometheus.NewDesc("holdfast_node_calls",
		"Calls that wait for the node's answer or for their turn.", []string{"quorum", "node"}, nil)

	owedDesc = prometheus.NewDesc("holdfast_node_releases_owed",
		"Releases that the node has not confirmed yet.", []string{"quorum", "node"}, nil)

	followedDescs = []*prometheus.Desc{heldDesc, waitingDesc, neededDesc, stateDesc, callsDesc,
		owedDesc}
)

// nodeStates are the values of the label state.
var nodeStates = []quorum.NodeState{quorum.Unasked, quorum.Up, quorum.Down, quorum.Quarantined,
	quorum.Refusing, quorum.Duplicate}

// Follow adds what the Locker holds, and how many wait in it, to holdfast_held and holdfast_waiting
// with the label locker=name. Lockers with one name are added up. stop ends that; call it when the
// Locker ends. Calling stop again does nothing.
func (m *Metrics) Follow(name string, locker *holdfast.Locker) (stop func()) {
	f := &followedLocker{strings.ToValidUTF8(name, "\uFFFD"), locker}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed.lockers = append(m.followed.lockers, f)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.followed.lockers = without(m.followed.lockers, f)
	}
}

// FollowNodes adds the state of the nodes of a quorum, for example of one that redlock.Open
// returned. status is its method Status. If status panics, slog.Default logs it, and scrapes go on
// without the nodes of this quorum. Of two quorums with one name the later one counts. stop ends
// that; calling it again does nothing.
func (m *Metrics) FollowNodes(name string, status func() quorum.Status) (stop func()) {
	f := &followedQuorum{strings.ToValidUTF8(name, "\uFFFD"), status}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed.quorums = append(m.followed.quorums, f)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.followed.quorums = without(m.followed.quorums, f)
	}
}

// without returns a copy without the element: a scrape may be reading the slice.
func without[E comparable](all []E, one E) (rest []E) {
	for _, e := range all {
		if e != one {
			rest = append(rest, e)
		}
	}
	return rest
}

func (m *Metrics) collectFollowed(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	f := m.followed
	m.mu.Unlock()

	type now struct{ held, waiting int }
	byName := make(map[string]now)
	for _, l := range f.lockers {
		s, sum := l.locker.Stats(), byName[l.name]
		byName[l.name] = now{sum.held + s.Held, sum.waiting + s.Waiting}
	}
	for name, n := range byName {
		metrics <- gauge(heldDesc, n.held, name)
		metrics <- gauge(waitingDesc, n.waiting, name)
	}

	quorums := make(map[string]func() quorum.Status)
	for _, q := range f.quorums {
		quorums[q.name] = q.status
	}
	for name, status := range quorums {
		collectQuorum(metrics, name, status)
	}
}

// collectQuorum logs a panic of status. The goroutine is that of the registry, so a panic would end
// the program. An invalid metric could tell of the panic as well, but the whole scrape would fail.
func collectQuorum(metrics chan<- prometheus.Metric, name string, status func() quorum.Status) {
	defer func() {
		if p := recover(); p != nil {
			slog.Warn("promhold: the status of a quorum panicked", "quorum", name, "panic",
				fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	collectNodes(metrics, name, status())
}

func collectNodes(metrics chan<- prometheus.Metric, name string, status quorum.Status) {
	metrics <- gauge(neededDesc, status.Need, name)
	seen := make(map[string]bool) // a scrape with a series twice would fail as a whole
	for _, n := range status.Nodes {
		node := strings.ToValidUTF8(n.Name, "\uFFFD")
		if seen[node] {
			continue
		}
		seen[node] = true
		for _, state := range nodeStates {
			is := 0
			if n.State == state {
				is = 1
			}
			metrics <- gauge(stateDesc, is, name, node, state.String())
		}
		metrics <- gauge(callsDesc, n.Pending, name, node)
		metrics <- gauge(owedDesc, n.Owed, name, node)
	}
}

func gauge(desc *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
}
