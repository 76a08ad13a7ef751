//go:build unix

package itest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/stores"
)

// mutant is a way to break the library, in mutants/, and what must notice it.
type mutant struct {
	patches []string
	checks  []string // each has to find a violation; a check of guards in each of its stores
	config  lab.Config
}

// broken are all of them. They need faults of the right kinds to show, so they get no others.
var broken = []mutant{
	{[]string{"release-without-compare"}, []string{"exclusion", "linearizability", "sole"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{"pause", "requests held"}}},
	{[]string{"renewal-outlives-deadline"}, []string{"exclusion"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{"partition", "requests held",
			"all lost"}}},
	{[]string{"validity-without-elapsed"}, []string{"exclusion"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Work: 100 * time.Millisecond,
			Faults: []string{"slow"}}},
	{[]string{"quarantine-off"}, []string{"exclusion"},
		lab.Config{Nodes: 3, Persistence: lab.Memory, Guard: 2 * time.Second,
			Faults: []string{"restart", "partition"}}},
	{[]string{"no-raise", "skewed-clocks"}, []string{"acknowledged", "tokens"},
		lab.Config{Nodes: 3, Persistence: lab.Always, Guard: 2 * time.Second, Skew: time.Hour,
			Faults: []string{"partition", "freeze", "kill", "all lost"}}},
	{[]string{"tokens-from-clocks", "skewed-clocks"}, []string{"register", "rising", "tokens"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Skew: time.Hour, Faults: []string{}}},
	{[]string{"token-before-lock"}, []string{"register"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Clients: 8, Workers: 2, Keys: 60,
			Work: 5 * time.Millisecond, Faults: []string{"pipelines split"}}},
	{[]string{"loss-told-late"}, []string{"loss"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Faults: []string{}}},
	{[]string{"clean-up-on-dead-context"}, []string{"idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, TTL: 20 * time.Second, Wait: 8 * time.Second,
			Patience: 10 * time.Second, Work: 20 * time.Millisecond, Latency: 30 * time.Millisecond,
			Faults: []string{}}},
	// There are so many keys that nobody else comes for one while somebody waits for it in vain.
	{[]string{"wake-up-lost"}, []string{"idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Clients: 2, Workers: 4, Keys: 60,
			Wait: 20 * time.Second, Patience: 10 * time.Second, Faults: []string{}}},
	{[]string{"other-set-served"}, []string{"exclusion"},
		lab.Config{Nodes: 3, Persistence: lab.Always, Guard: 2 * time.Second, Keys: 2,
			Replacing: true, Faults: []string{"server replaced", "partition"}}},
	{[]string{"other-set-served"}, []string{"exclusion"},
		lab.Config{Nodes: 3, Grown: 5, Persistence: lab.Always, Guard: 2 * time.Second, Keys: 2,
			Faults: []string{"number of servers changed", "partition"}}},
	{[]string{"owners-come-up-again"}, []string{"owners"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{}}},
	{[]string{"lease-for-ever"}, []string{"liveness", "orphans"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Patience: 10 * time.Second,
			Faults: []string{"kill"}}},
	{[]string{"connection-left"}, []string{"leaks"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Patience: 10 * time.Second,
			Faults: []string{}}},
	{[]string{"writer-ignores-readers"}, []string{"exclusion", "linearizability", "sole"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Sharing: true, Faults: []string{}}},
	{[]string{"reader-token-not-raised"}, []string{"rising", "tokens"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Sharing: true, Faults: []string{}}},
	{[]string{"downgrade-not-confirmed"}, []string{"downgrades"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Sharing: true,
			Faults: []string{"requests held"}}},
	// Readers stay so long that there is always one.
	{[]string{"readers-overtake"}, []string{"starvation"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 1, Workers: 3, Sharing: true,
			Wait: 20 * time.Second, Work: 500 * time.Millisecond, Faults: []string{}}},
	{[]string{"set-keeps-keys"}, []string{"sets"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Workers: 1, Sets: 2, Sharing: true,
			Faults: []string{}}},
	{[]string{"sets-in-any-order"}, []string{"sets"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Workers: 1, Sets: 2,
			Faults: []string{}}},
	{[]string{"one-permit-more"}, []string{"permits"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Workers: 1, Permits: 2,
			Faults: []string{}}},
	// So few goroutines come that several permits are free most of the time.
	{[]string{"spare-permit-kept"}, []string{"idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Keys: 2, Workers: 1, Permits: 1,
			Work: 2 * time.Millisecond, Faults: []string{}}},
	// A mutant has to be noticed on each of the other systems, too.
	{[]string{"etcd-release-without-compare"}, []string{"exclusion"},
		lab.Config{System: lab.Etcd, Nodes: 3, Persistence: lab.Always, Keys: 2,
			Faults: []string{"pause"}}},
	{[]string{"zookeeper-release-without-compare"}, []string{"exclusion"},
		lab.Config{System: lab.ZooKeeper, Nodes: 3, Persistence: lab.Always, Keys: 2,
			Faults: []string{"pause"}}},
	{[]string{"postgres-tokens-halved"}, []string{"rising", "tokens"},
		lab.Config{System: lab.Postgres, Nodes: 2, Persistence: lab.Confirmed, Keys: 2,
			Faults: []string{"pause"}}},
	// Each store is judged by itself, so several guards are broken at once. Nothing may be found in
	// a store whose guard is whole; but the service has a guard table behind it.
	{[]string{"column-without-fence", "trigger-without-compare", "redis-without-compare",
		"pgx-without-compare", "etcd-without-compare", "s3-without-compare", "file-without-compare",
		"http-without-guard", "register-without-compare"},
		guardsOf("PostgreSQL, Column", "MariaDB, Column", "SQLite, Column",
			"PostgreSQL, Column over pgx", "PostgreSQL, Table over pgx",
			"PostgreSQL, Trigger over pgx", "PostgreSQL, Trigger", "MariaDB, Trigger",
			"SQLite, Trigger",
			"Redis, token in a key", "Redis, token in a field", "etcd", "S3", "file",
			"HTTP, PostgreSQL behind it", "memory, Register"), lab.Stores},
	{[]string{"table-without-compare"},
		guardsOf("PostgreSQL, Table", "MariaDB, Table", "SQLite, Table"), lab.Stores},
}

// guardsOf returns the checks of the guards of stores. Each has to see that a late write is let in.
func guardsOf(stores ...string) (checks []string) {
	checks = append(checks, "guards")
	for _, s := range stores {
		checks = append(checks, "guards: "+s)
	}
	return checks
}

// If no mutant breaks the guard of a kind of store, a guard that lets everything in may pass.
func TestEveryStoreHasAMutant(t *testing.T) {
	for _, k := range stores.Kinds {
		if !slices.ContainsFunc(broken, func(m mutant) bool {
			return slices.Contains(m.checks, "guards: "+k.Name)
		}) {
			t.Errorf("no mutant breaks the guard of %s", k.Name)
		}
	}
}

// A check that no mutant makes fail may be unable to fail.
func TestEveryCheckHasAMutant(t *testing.T) {
	// the laboratory itself sees orphans
	checks := slices.AppendSeq([]string{"orphans"}, maps.Keys(check.Checks))
	for _, name := range checks {
		if !slices.ContainsFunc(broken, func(m mutant) bool {
			return slices.Contains(m.checks, name)
		}) {
			t.Errorf("no mutant makes %s fail", name)
		}
	}
}
