package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// Each node is shown with what it knows: one that has granted, one that is behind, one that does
// not answer, and one that a claim without a majority holds.
func TestNodesAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemories(t, 5)
		names := quorum.WithNames("a", "b", "c", "d", "e")
		q := m.open(t, quorum.WithGuard(0), names)
		defer q.Close()
		claim := driver.Claim{Key: "k", Owner: "holder", TTL: time.Minute, Token: 1}
		if r, err := q.Acquire(t.Context(), claim); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire = %v, %v; want held", r.State, err)
		}
		synctest.Wait()
		m.nodes[1].Faults().Lose("k")
		m.nodes[3].Faults().Lose("k")
		m.nodes[3].Faults().Give("k", "other", time.Minute)
		m.clients[q][4].Faults().Freeze()
		entries, err := q.InspectNodes(t.Context(), "k")
		if err != nil || len(entries) != 5 {
			t.Fatalf("InspectNodes = %+v, %v; want five", entries, err)
		}
		for i, want := range []quorum.NodeEntry{
			{Node: "a", Entry: driver.Entry{Holder: driver.Party{Owner: "holder"}}},
			{Node: "b"},
			{Node: "c", Entry: driver.Entry{Holder: driver.Party{Owner: "holder"}}},
			{Node: "d", Entry: driver.Entry{Holder: driver.Party{Owner: "other"}}},
			{Node: "e", Err: errors.New("any")},
		} {
			got := entries[i]
			if got.Node != want.Node || got.Entry.Holder.Owner != want.Entry.Holder.Owner ||
				(got.Err != nil) != (want.Err != nil) {
				t.Errorf("node %d is shown as %+v; want %+v", i, got, want)
			}
		}
		m.clients[q][4].Faults().Thaw()
	})
}

// Without a majority the nodes that answer are shown at the end of the context, and after Close
// none is asked.
func TestNodesAreShownWithoutAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemories(t, 3)
		q := m.open(t, quorum.WithGuard(0))
		for _, frozen := range m.clients[q][1:] {
			frozen.Faults().Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		entries, err := q.InspectNodes(ctx, "k")
		if err != nil || len(entries) != 3 || entries[0].Err != nil || entries[1].Err == nil ||
			entries[2].Err == nil {
			t.Errorf("InspectNodes = %+v, %v; want one that answers", entries, err)
		}
		if _, err := q.InspectNodes(ctx, "k"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("after the context has ended: %v; want ErrUnavailable", err)
		}
		for _, frozen := range m.clients[q][1:] {
			frozen.Faults().Thaw()
		}
		q.Close()
		if _, err := q.InspectNodes(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("after Close: %v; want ErrUnavailable", err)
		}
	})
}
