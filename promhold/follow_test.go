package promhold_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/promhold"
	"github.com/holdfast-go/holdfast/quorum"
)

func TestHeldAndWaitingNow(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, _ := w.locker()
		twin, _ := w.locker()
		alone, _ := w.locker()
		stop := w.metrics.Follow("orders", l)
		w.metrics.Follow("orders", twin)
		stopAlone := w.metrics.Follow("alone", alone)

		w.acquire(l, "a")
		w.acquire(l, "b")
		w.acquire(twin, "c")
		w.acquire(alone, "d", holdfast.WithPermits(2))
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			go twin.Acquire(ctx, "a")
		}
		w.scrape().want(t, samples{
			`holdfast_held{locker="orders"}`:    3,
			`holdfast_held{locker="alone"}`:     1,
			`holdfast_waiting{locker="orders"}`: 5,
			`holdfast_waiting{locker="alone"}`:  0,
		})
		cancel()
		synctest.Wait()

		stop()
		stop()
		stopAlone()
		s := w.scrape()
		s.want(t, samples{
			`holdfast_held{locker="orders"}`:    1,
			`holdfast_waiting{locker="orders"}`: 0,
		})
		for series := range s {
			if strings.Contains(series, "alone") {
				t.Errorf("%s is there, of a Locker that is not followed any more", series)
			}
		}
	})
}

// threeNodes is what a quorum of three might say.
func threeNodes() quorum.Status {
	return quorum.Status{Need: 2, Nodes: []quorum.NodeStatus{
		{Name: "h1:6379", State: quorum.Up},
		{Name: "h2:6379", State: quorum.Down, Pending: 3, Owed: 4},
		{Name: "h2:6379", State: quorum.Up},
	}}
}

func TestNodesOfStatus(t *testing.T) {
	metrics := promhold.New()
	metrics.FollowNodes("main", func() quorum.Status { return quorum.Status{Need: 9} })
	stop := metrics.FollowNodes("main", threeNodes)
	gather(t, metrics).want(t, samples{
		`holdfast_nodes_needed{quorum="main"}`:                                  2,
		`holdfast_node_state{node="h1:6379",quorum="main",state="up"}`:          1,
		`holdfast_node_state{node="h1:6379",quorum="main",state="down"}`:        0,
		`holdfast_node_state{node="h2:6379",quorum="main",state="down"}`:        1,
		`holdfast_node_state{node="h2:6379",quorum="main",state="up"}`:          0,
		`holdfast_node_state{node="h2:6379",quorum="main",state="quarantined"}`: 0,
		`holdfast_node_calls{node="h2:6379",quorum="main"}`:                     3,
		`holdfast_node_releases_owed{node="h2:6379",quorum="main"}`:             4,
		`holdfast_node_releases_owed{node="h1:6379",quorum="main"}`:             0,
	})
	stop()
	gather(t, metrics).want(t, samples{`holdfast_nodes_needed{quorum="main"}`: 9})
}

// On a real quorum, of which one node does not answer.
func TestNodesOfAQuorum(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		nodes := []*memhold.Backend{memhold.New(), memhold.New(), memhold.New()}
		q, err := quorum.New([]driver.Backend{nodes[0], nodes[1], nodes[2]}, quorum.WithGuard(0),
			quorum.WithNames("a", "b", "c"))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		w.metrics.FollowNodes("main", q.Status)
		l, err := holdfast.New(q, holdfast.WithHooks(w.metrics.Hooks(0)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		nodes[2].Faults().Inject(memhold.Fault{Err: driver.ErrUnavailable})
		for range 5 {
			lock := w.acquire(l, "key")
			synctest.Wait() // until the node has failed, too; it is not asked for what is over
			w.release(lock)
		}
		synctest.Wait()
		w.scrape().want(t, samples{
			`holdfast_node_state{node="a",quorum="main",state="up"}`:   1,
			`holdfast_node_state{node="b",quorum="main",state="up"}`:   1,
			`holdfast_node_state{node="c",quorum="main",state="up"}`:   0,
			`holdfast_node_state{node="c",quorum="main",state="down"}`: 1,
		})
	})
}

// A status that panics does not end the program, though it panics in the goroutine of a scrape.
// Everything else is there, and the quorum is back when its status is.
//
// Fails if the code is broken like this: collectQuorum without recover.
func TestStatusMayPanic(t *testing.T) {
	metrics := promhold.New()
	metrics.FollowNodes("main", threeNodes)
	calls := 0
	metrics.FollowNodes("odd", func() quorum.Status {
		if calls++; calls == 1 {
			panic("a quorum's fault")
		}
		return quorum.Status{Need: 9}
	})
	s := gather(t, metrics)
	s.want(t, samples{`holdfast_nodes_needed{quorum="main"}`: 2})
	if _, ok := s[`holdfast_nodes_needed{quorum="odd"}`]; ok {
		t.Error("there are nodes of a quorum that could not be asked")
	}
	gather(t, metrics).want(t, samples{
		`holdfast_nodes_needed{quorum="main"}`: 2,
		`holdfast_nodes_needed{quorum="odd"}`:  9,
	})
}
