package report

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
)

// Run is one run with what was found in it.
type Run struct {
	Result *lab.Result     // what was recorded
	Found  []check.Finding // what the checks say of it
}

// title names the run.
func (r *Run) title() string {
	c := r.Result.Config
	title := c.Mode() + ", " + map[lab.Persistence]string{
		lab.Memory: "nothing kept through a restart", lab.EverySec: "synced every second", lab.Always: "synced always",
	}[c.Persistence]
	if c.Limits {
		title += ", assumptions broken"
	}
	return title
}

// Environment says what a report was made with.
type Environment struct {
	Commit   string        // of the repository
	Redis    string        // version of the server
	Go       string        // version
	Cores    int           // of the machine
	Seed     uint64        // of everything
	Duration time.Duration // of the faults in all runs
	Date     string        // of the day
}

const head = `# What the fault laboratory saw

Real redis-servers, client processes that use the library as a service would, a network between them that can be spoiled, and a nemesis
that breaks all of it, drawing from a seed. Everything that clients saw was recorded on one clock and then checked: exclusion, tokens,
guarded writes, linearizability (by Porcupine), loss told in time, wake-ups, liveness, what is left behind. What the laboratory is made of is
in the package documentation of ` + "`itest`" + `; ` + "`make mutants`" + ` shows that each check can fail.

`

const scope = `## What it does not show

All processes are on one machine, so their clocks run at one rate: the drift allowance is not put to the test, and no host is suspended. The network
is a proxy in the laboratory's process. A power failure is a kill that takes away what was written to the append-only file shortly before. Servers
are single ones: Sentinel, Cluster and TLS have tests of their own. Where an assumption was broken, whatever happened at that moment to a
lock that was held is put down to it.

`

// Write writes the report as Markdown, with its pictures beside it.
func Write(dir string, env Environment, runs []Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(head)
	fmt.Fprintf(&b, "%s, commit %s, %s, %s, %d cores. To repeat it, at that commit: `make torture DURATION=%s SEED=%d`. The seed gives the same faults in the same order; "+
		"when they hit is up to the machine.\n\n", env.Date, env.Commit, env.Redis, env.Go, env.Cores, short(env.Duration), env.Seed)
	verdict(&b, runs)
	figures(&b, runs)
	b.WriteString(scope)
	for i := range runs {
		r := &runs[i]
		picture := fmt.Sprintf("torture-%d.svg", i+1)
		if err := os.WriteFile(filepath.Join(dir, picture), Timeline(r.Result, r.Found), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "## %s\n\n", r.title())
		findings(&b, r.Found)
		counts := Count(r.Result, r.Found)
		fmt.Fprintf(&b, "Faults: %s.\n\nCalls of Acquire that got no lock: %s.\n\n", tally(counts.Faults), tally(counts.Errors))
		fmt.Fprintf(&b, "%v of it: who held which key, with the last digits of the token; grey is what was broken, pale red what broke an assumption, red two holders at once, dashed what the checks found.\n\n![Timeline](%s)\n\n", span, picture)
	}
	return os.WriteFile(filepath.Join(dir, "torture.md"), append(bytes.TrimRight(b.Bytes(), "\n"), '\n'), 0o644)
}

// verdict says what it all amounts to.
func verdict(b *bytes.Buffer, runs []Run) {
	violations, undone, refused, tokens := 0, 0, 0, 0
	limits := make(map[string]int)
	var total time.Duration
	for i := range runs {
		counts := Count(runs[i].Result, runs[i].Found)
		violations += counts.Violated
		undone += counts.Undone
		refused += counts.Refused
		total += runs[i].Result.Config.Duration
		for _, f := range runs[i].Found {
			switch {
			case f.Excuse != "" && f.Check == "exclusion":
				limits[f.Excuse]++
			case f.Check == "tokens":
				tokens++
			}
		}
	}
	fmt.Fprintf(b, "**%d violations in %s of faults.** ", violations, short(total))
	switch {
	case len(limits) == 0 && violations == 0:
		b.WriteString("No lock was held twice.\n")
	case len(limits) > 0:
		b.WriteString("A lock was held twice where an assumption was broken that the documentation names")
		if violations == 0 {
			b.WriteString(", and nowhere else")
		}
		b.WriteString(":\n\n")
		for _, excuse := range slices.SortedFunc(maps.Keys(limits), func(a, b string) int { return cmp.Or(cmp.Compare(limits[b], limits[a]), cmp.Compare(a, b)) }) {
			fmt.Fprintf(b, "- %d times: %s\n", limits[excuse], excuse)
		}
	}
	b.WriteString("\n")
	if tokens == 0 {
		b.WriteString("Tokens rose without exception, also there. ")
	}
	fmt.Fprintf(b, "Some clients go on writing whatever their lock says, as a process does that is paused between looking and writing: "+
		"guards refused %d writes. In a store without a guard %d updates would have been lost: **a lock alone does not protect data**.\n\n", refused, undone)
}

func figures(b *bytes.Buffer, runs []Run) {
	b.WriteString("| | duration | acquisitions asked | granted | lost | writes | refused | undone without guard | faults | pauses | longest outage | excused | violations |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range runs {
		r := &runs[i]
		c := Count(r.Result, r.Found)
		faults := 0
		for _, n := range c.Faults {
			faults += n
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %v | %d | %d |\n", r.title(), short(r.Result.Config.Duration), c.Asked, c.Granted, c.Lost,
			c.Writes, c.Refused, c.Undone, faults, c.Pauses, c.Outage.Round(100*time.Millisecond), c.Excused, c.Violated)
	}
	b.WriteString("\nAn outage is a time in which nobody was granted anything: the nemesis may well have stopped all servers. Pauses are stops of clients, and stalls of more than 100 ms that they noticed.\n\n")
}

// findings lists violations one by one, and the rest by kind with an example.
func findings(b *bytes.Buffer, found []check.Finding) {
	for _, f := range check.Violations(found) {
		fmt.Fprintf(b, "- **Violation**: %s\n", oneLine(f.String()))
	}
	byKind := make(map[string][]check.Finding)
	for _, f := range found {
		if f.Excuse != "" {
			kind := f.Check + ": " + f.Excuse
			byKind[kind] = append(byKind[kind], f)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(b, "- %s: %d times, the first: %s\n", kind, len(byKind[kind]), oneLine(byKind[kind][0].Text))
	}
	if len(found) == 0 {
		b.WriteString("Nothing was found.\n")
	}
	b.WriteString("\n")
}

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// short leaves out what is zero: 30m, not 30m0s.
func short(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
