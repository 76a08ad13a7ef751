//go:build unix

package report

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
)

// Guards is the name of the page on the guarded stores.
const Guards = "torture-guards.md"

const guardsHead = `# Writes that came too late

Processes hold a lock on a Redis, and read a counter in each of these stores through its guard. Then
SIGSTOP stops them past their lease, until another holder has read, or has also written. When they
go on, they do not look at their lock any more, and write. Any program that is paused between its
last look and its write does the same. Beside each counter is a twin without a guard, which the same
processes read and write by the same steps. [fencing.md](fencing.md) explains the guards, and
[torture.md](torture.md) says what else the laboratory does.

`

const guardsFoot = `
A write is too late if a larger token had been accepted before it began, and if it was answered. An
update is lost without a guard if it was written to the twin and is not in it at the end. A checker
also sees that each guard refuses nothing else, and that the token in its store never goes back.
Whoever is let in must read what was accepted last and nothing else, and the counter must end with
that.
`

// writeGuards writes the page if a run had guarded stores. Otherwise the page of an earlier report
// stays.
func writeGuards(dir string, env Environment, runs []*Run) error {
	stores := sumUp(runs)
	if len(stores) == 0 {
		return nil
	}
	var spent time.Duration
	for _, r := range runs {
		if len(r.Guards) > 0 {
			spent += r.config.Duration
		}
	}
	var all check.Guarded
	for _, g := range stores {
		all.Stale += g.Stale
		all.Accepted += g.Accepted
		all.Lost += g.Lost
	}
	wrong, unanswered := found(runs)
	var b bytes.Buffer
	b.WriteString(guardsHead)
	fmt.Fprintf(&b, "**In our laboratory %d updates would have been lost without a guard.** ",
		all.Lost)
	if all.Accepted == 0 {
		fmt.Fprintf(&b, "The guards\nrefused all %d writes that came too late.\n\n", all.Stale)
	} else {
		fmt.Fprintf(&b, "**The guards\naccepted %d of %d writes that came too late.**\n\n",
			all.Accepted, all.Stale)
	}
	if wrong > 0 {
		fmt.Fprintf(&b, "**The checker found that %d promises of guards were broken.**\n\n", wrong)
	}
	if unanswered > 0 {
		fmt.Fprintf(&b, "To %d requests a guard did not answer in time.\n\n", unanswered)
	}
	table(&b, stores)
	b.WriteString(guardsFoot)
	fmt.Fprintf(&b, "\n%s\n%s. To repeat it, at that commit:\n\n"+
		"    go run ./itest/torture -modes 'guarded stores' -duration %s\n", env.machine(),
		env.Databases, short(spent))
	return replace(filepath.Join(dir, Guards), b.Bytes())
}

// table has a row for each store.
func table(b *bytes.Buffer, stores []check.Guarded) {
	b.WriteString("| store | writes | too late | of them accepted | lost without a guard |\n" +
		"|---|---|---|---|---|\n")
	for _, g := range stores {
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d |\n", g.Store, g.Writes, g.Stale, g.Accepted,
			g.Lost)
	}
}

// found counts what the checks have found about the guards, and what had no answer in time.
func found(runs []*Run) (wrong, unanswered int) {
	for _, r := range runs {
		for _, f := range r.found {
			switch {
			case f.Check != "guards":
			case f.Excuse != "":
				unanswered++
			default:
				wrong++
			}
		}
	}
	return wrong, unanswered
}

// sumUp adds up the counts of each store, in the order of their names.
func sumUp(runs []*Run) (stores []check.Guarded) {
	for _, r := range runs {
		for _, g := range r.Guards {
			i := slices.IndexFunc(stores, func(s check.Guarded) bool { return s.Store == g.Store })
			if i < 0 {
				stores = append(stores, g)
				continue
			}
			stores[i].Writes += g.Writes
			stores[i].Stale += g.Stale
			stores[i].Accepted += g.Accepted
			stores[i].Lost += g.Lost
		}
	}
	slices.SortFunc(stores, func(a, b check.Guarded) int { return cmp.Compare(a.Store, b.Store) })
	return stores
}
