//go:build unix

package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// complete are the keys of a run with locks of all kinds: the first ones, and those of semaphores.
var complete = []string{"key1", "key2", "short1", "set1", "set2", "set3", "permit1@permit/0",
	"permit1@permit/1", "permit1@permit/2", "permit1@permit/gate1",
	"permit1@permit/gate2", "permit1@permit/gate3", "permit1@permit/scout"}

// drawing returns a nemesis in a run with locks of all kinds. Of the run there is only the log.
func drawing(t *testing.T, c Config) *nemesis {
	t.Helper()
	c.Keys, c.Hasty, c.Sets, c.Permits = 2, 1, 1, 1
	return &nemesis{run: recording(t, c), draw: rand.New(rand.NewPCG(1, 2))}
}

// draws is more often than it takes to draw each of the keys once.
const draws = 500

// What breaks a key also breaks those of semaphores: each slot, and the gate.
func TestEveryKeyMayBeDeleted(t *testing.T) {
	n := drawing(t, Config{Nodes: 1, Limits: true})
	nodes, stop, err := StartNodes(t.Context(), t.TempDir(), 1, Memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	n.run.nodes = nodes
	for _, key := range complete {
		if _, err := nodes[0].Do("SET", prefix+key, "owner"); err != nil {
			t.Fatal(err)
		}
	}
	for range draws {
		n.remove()
	}
	if left, err := nodes[0].Do("KEYS", "*"); err != nil || fmt.Sprint(left) != "[]" {
		t.Errorf("these are never deleted: %v, %v", left, err)
	}
	var named []string
	for _, f := range recorded(t, n.run, history.Fault) {
		if f.Breaks != deleted || f.Target != "n1" {
			t.Fatalf("recorded %+v", f)
		}
		named = append(named, f.Key)
	}
	slices.Sort(named)
	if got := slices.Compact(named); !slices.Equal(got, slices.Sorted(slices.Values(complete))) {
		t.Errorf("deleted are %q, want %q", got, complete)
	}
}

func TestEverySlotOfALockIsMoved(t *testing.T) {
	n := drawing(t, Config{Nodes: 3, Cluster: true})
	moved := make(map[uint16]bool)
	for range draws {
		moved[n.slotOfLock()] = true
	}
	for _, key := range complete {
		if !moved[protocol.Slot(prefix+key)] {
			t.Errorf("the slot of %s never moves", key)
		}
	}
	if len(moved) > len(complete) {
		t.Errorf("%d slots move, and there are %d keys", len(moved), len(complete))
	}
}

// A part of a Cluster that fails over may forget all of its keys, and no others.
func TestPartsHaveAllKeys(t *testing.T) {
	n := drawing(t, Config{Nodes: 3, Cluster: true, Replicas: true})
	var all []string
	for i := range 3 {
		keys := n.run.inPart(i)
		for _, key := range keys {
			if part := n.run.part(protocol.Slot(prefix + key)); part != i {
				t.Errorf("%s is in part %d, not in %d", key, part, i)
			}
		}
		if len(keys) == 0 {
			t.Errorf("nothing is in part %d, so nothing is shown", i)
		}
		all = append(all, keys...)
	}
	slices.Sort(all)
	if want := slices.Sorted(slices.Values(complete)); !slices.Equal(all, want) {
		t.Errorf("the parts have %q, want %q", all, want)
	}
}

// Clients take permits by the keys from which faults are drawn.
func TestJobsHaveAllSemaphores(t *testing.T) {
	n := drawing(t, Config{Nodes: 1})
	j := n.run.job()
	if j.Limited != 1 || j.Permits != morePermits || len(j.Semaphores) == 0 {
		t.Errorf("the job is %+v", j)
	}
	for _, key := range n.run.keys() {
		if strings.HasPrefix(key, j.Semaphores[0]) {
			t.Errorf("the semaphore has the key %s of a lock", key)
		}
	}
	if without := recording(t, Config{Keys: 2}); len(without.stored()) != 2 ||
		without.job().Semaphores != nil {
		t.Errorf("without semaphores there are %q", without.stored())
	}
}
