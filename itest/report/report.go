//go:build unix

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

// Run is one run, with what was found in it. [Of] makes it.
type Run struct {
	Figures
	number  int // among all runs, from 1 on, failed ones included
	config  lab.Config
	found   []check.Finding
	picture []byte
}

// Of sums up what was recorded in the run of this number, and what the checks say of it. It does
// not keep the history, which is large.
func Of(number int, r *lab.Result, found []check.Finding) *Run {
	return &Run{Figures: Count(r, found), number: number, config: r.Config, found: found,
		picture: Timeline(r, found)}
}

// Number is that of the run among all.
func (r *Run) Number() int { return r.number }

// Archive names the file, beside the report, with all that was recorded in the run of this number.
func Archive(number int) string { return fmt.Sprintf("torture-%d.jsonl.gz", number) }

// title names the run.
func (r *Run) title() string {
	c := r.config
	kept := map[lab.Persistence]string{
		lab.Memory: "nothing kept through a restart", lab.EverySec: "synced every second",
		lab.Always: "synced always",
	}[c.Persistence]
	title := c.Mode() + ", " + cmp.Or(kept, string(c.Persistence))
	if c.System != lab.Redis && kept != "" {
		title = c.Mode()
	}
	if c.Limits {
		title += ", assumptions broken"
	}
	return title
}

// Environment says with what a report was made.
type Environment struct {
	Commit    string        // of the repository
	Checked   string        // commit whose checks were made later; empty if it is the same
	Redis     string        // version of the server
	Databases string        // versions of the servers of guarded stores
	Servers   string        // the versions of those that are not Redis
	Go        string        // version
	Cores     int           // of the machine
	Seed      uint64        // of everything
	Duration  time.Duration // of the faults in all runs
	Parallel  int           // how many runs there were at once
	Modes     string        // regular expression for those that were run; empty: all
	Date      string        // of the day
	Missing   []string      // modes in which the laboratory itself failed
}

// machine says when the report was made, of what, and on what machine.
func (e Environment) machine() string { return e.on(e.Redis) }

func (e Environment) on(servers string) string {
	return fmt.Sprintf("%s, commit %s, %s, %s, %d cores.", e.Date, e.Commit, servers, e.Go, e.Cores)
}

// again says how to repeat the runs.
func (e Environment) again() string {
	if e.Modes != "" {
		return fmt.Sprintf("go run ./itest/torture -modes '%s' -duration %s -parallel %d -seed %d "+
			"-report docs", e.Modes, short(e.Duration), e.Parallel, e.Seed)
	}
	return fmt.Sprintf("make torture DURATION=%s PARALLEL=%d SEED=%d", short(e.Duration),
		e.Parallel, e.Seed)
}

const head = `# What the fault laboratory saw

The laboratory runs real redis-servers, and client processes that use the library as a service
would. The network between them can be spoiled. A nemesis breaks all of it, and draws what it does
from a seed. Locks are on a single Redis, over three or five servers (Redlock), in a Cluster, or
behind a Sentinel. Half of the clients use redishold and half goredishold. Where clients' clocks are
set, all use redishold.

Everything that clients saw was recorded on one clock and then checked:

- exclusion, tokens, permits never more than there are, and downgrades that are confirmed;
- guarded writes, and reads of what must not change meanwhile;
- linearizability (by Porcupine);
- loss told in time;
- turns of readers, writers and sets, wake-ups, and liveness;
- what is left behind;
- what clients and servers said to each other, by the rules of the model of the tokens in ` + "`models`" + `.

A run that has shown nothing fails: see ` + "`itest/check`" + `. The package documentation of ` + "`itest`" + ` says
what the laboratory is made of. ` + "`make mutants`" + ` shows that each check can fail.

`

const scope = `## What is drawn

**Each client** draws from a seed of its own. It takes single keys: alone, shared as a reader, or
downgraded while it works. It takes sets of two or three keys in any order, some of them shared. It
takes permits of a semaphore. Half of the clients know three permits and the others two, as in a
rollout of a new number. It also draws how long it waits and holds, whether the lock is renewed, and
whether it looks at its lock at all.

**The faults** of a mode come up in turns. In all modes:

- Processes that lock are paused and killed.
- The network holds, loses, delays, resets, refuses and half closes connections, and splits
  pipelines.
- Servers are frozen, killed and restarted, also one after the other. They lose their power, unless
  they keep nothing. They run out of memory, forget scripts, end connections and refuse
  subscriptions. Their wall clocks run up to 0.4 % too fast or too slow. Where replicas take over,
  servers are not restarted.

Where several servers have a quarantine, they are also replicas of each other for a while. If they
do not keep everything, they come back with older data, and their persistence is changed in the file
and while they run.

Modes of their own have these:

- An operator replaces servers by empty ones, with another guard and Adopt, while clients are
  restarted one after the other.
- A set of three servers grows to five and shrinks again, by Adopt.
- Slots of a Cluster without replicas are moved.
- Servers never allow a subscription.
- The wall clocks of clients are set anew every other second.
- Clients speak TLS with servers.
- Holders write to every kind of store that has a guard, and are stopped past their lease before
  they write (see [torture-guards.md](torture-guards.md)). There are no other faults.

Where assumptions are broken, servers also forget and evict keys, and keys are deleted. Wall clocks
of servers jump, or run at quite another rate. In modes of their own a replica takes over that may
have been cut off from its primary before: by a Sentinel, where both are primaries for a while, or
in a Cluster.

## What it does not show

All processes are on one machine, and no host is suspended. The network is a proxy in the
laboratory's process. A power failure is a kill that also takes what the server had not synced, or,
with a sync every second, what was written within the last second. No server is added to a Cluster
or leaves it, and no slot moves where it has replicas. There is no Valkey, and no Redis but the one
named above. Foreign clients do not take part. They, and a suspended host, have tests of their own.

What clients and servers say to each other is checked against the model in all modes. A Cluster
counts as one server there, because the key of a lock moves together with its tokens. Where replicas
take over, the rules hold from one failover to the next, because what the former primary granted may
be forgotten.

Two holders of a key count as excused only if an assumption was broken at the server that granted
the key to both, on that key, and between its two answers. Over several servers this must be so for
each server that granted it to both, and of two majorities at least one server did. What was broken
elsewhere is no excuse.

`

// Write writes the report as Markdown, with its pictures beside it. It adds a page on the guarded
// stores, and one on other systems than Redis, if there were such runs.
func Write(dir string, env Environment, runs []*Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var redis, others []*Run
	for _, r := range runs {
		if r.config.System == lab.Redis {
			redis = append(redis, r)
		} else {
			others = append(others, r)
		}
	}
	if len(others) > 0 {
		if err := writeCoordinators(dir, env, others); err != nil || len(redis) == 0 {
			return err
		}
	}
	if err := writeGuards(dir, env, redis); err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(head)
	summary(&b, env, env.machine(), redis)
	b.WriteString(scope)
	if err := sections(&b, dir, redis); err != nil {
		return err
	}
	return save(filepath.Join(dir, "torture.md"), &b)
}

// save writes a page, which ends with a newline.
func save(path string, b *bytes.Buffer) error {
	return replace(path, append(bytes.TrimRight(b.Bytes(), "\n"), '\n'))
}

// summary says what was run, and with what result.
func summary(b *bytes.Buffer, env Environment, machine string, runs []*Run) {
	fmt.Fprintf(b,
		"%s To repeat it, at that commit: `%s`. The seed gives the same faults in the same order; "+
			"when they hit is up to the machine. The duration is that of all modes together, of which %d at most ran at once.\n\n",
		machine, env.again(), env.Parallel)
	if env.Checked != "" {
		fmt.Fprintf(b, "The records were checked again, by the checks of commit %s.\n\n",
			env.Checked)
	}
	if env.Modes != "" {
		fmt.Fprintf(b, "**Only modes with a name like `%s` were run.**\n\n", env.Modes)
	}
	if len(env.Missing) > 0 {
		fmt.Fprintf(b,
			"**In these modes the laboratory itself did not work, so nothing is known of them: %s.**\n\n",
			strings.Join(env.Missing, "; "))
	}
	verdict(b, runs)
	figures(b, runs)
}

// sections describes each run, with its picture.
func sections(b *bytes.Buffer, dir string, runs []*Run) error {
	for _, r := range runs {
		picture := fmt.Sprintf("torture-%d.svg", r.number)
		if err := replace(filepath.Join(dir, picture), r.picture); err != nil {
			return err
		}
		fmt.Fprintf(b, "## %s\n\n", r.title())
		findings(b, r.found)
		counts := r.Figures
		fmt.Fprintf(b, "Faults: %s.\n\n", tally(counts.Faults))
		if len(counts.Absent) > 0 {
			fmt.Fprintf(b, "**Faults that did not come up: %s.**\n\n",
				strings.Join(counts.Absent, ", "))
		}
		fmt.Fprintf(b, "Calls of Acquire that got no lock: %s.\n\n", tally(counts.Errors))
		fmt.Fprintf(b,
			"%v of it: who held which key, with the last digits of the token. Grey is what was broken, pale red what broke an assumption, red two holders at once, dashed what the checks found.\n\n![Timeline](%s)\n\nIts whole record: `%s`, which `go run ./itest/torture -recheck` checks again.\n\n",
			span, picture, Archive(r.number))
	}
	return nil
}

// replace writes a whole file or, if it fails, leaves what is there.
func replace(path string, text []byte) error {
	part := path + ".part"
	err := os.WriteFile(part, text, 0o644)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
}

// verdict says what the result of all runs is.
func verdict(b *bytes.Buffer, runs []*Run) {
	violations, undone, refused, tokens, granted, open := 0, 0, 0, 0, 0, 0
	limits := make(map[string]int)
	var total time.Duration
	for _, r := range runs {
		counts := r.Figures
		violations += counts.Violated
		granted += counts.Granted
		open += counts.Open
		undone += counts.Undone
		refused += counts.Refused
		total += r.config.Duration
		for _, f := range r.found {
			switch {
			case f.Excuse != "" && f.Check == "exclusion":
				limits[f.Excuse]++
			case f.Check == "tokens":
				tokens++
			}
		}
	}
	fmt.Fprintf(b,
		"**%d violations in %s of faults, with %d acquisitions.** %d times nothing was shown, which counts as a violation: the search for an order of the steps, or a probe, was given up, or the machine was too busy. ",
		violations, short(total), granted, open)
	switch {
	case len(limits) == 0 && violations == 0:
		b.WriteString("No lock was held twice.\n")
	case len(limits) > 0:
		b.WriteString(
			"A lock was held twice where an assumption that the documentation names was broken")
		if violations == 0 {
			b.WriteString(", and nowhere else")
		}
		b.WriteString(":\n\n")
		for _, excuse := range slices.SortedFunc(maps.Keys(limits), func(a, b string) int {
			return cmp.Or(cmp.Compare(limits[b], limits[a]), cmp.Compare(a, b))
		}) {
			fmt.Fprintf(b, "- %d times: %s\n", limits[excuse], excuse)
		}
	}
	b.WriteString("\n")
	if tokens == 0 {
		b.WriteString("Tokens rose without exception, also there. ")
	}
	fmt.Fprintf(b,
		"Some clients write whatever their lock says, like a process that is paused between its look and its write. "+
			"Guards refused %d writes. In our laboratory %d updates would have been lost without a guard: **a lock alone does not protect data**.\n\n",
		refused, undone)
}

func figures(b *bytes.Buffer, runs []*Run) {
	b.WriteString(
		"| | duration | acquisitions asked | granted | permits | probes | granted to probes | lost | writes | refused | undone without guard | faults | pauses | longest outage | machine too busy | undisturbed | waits judged | excused | violations |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	waits := 0
	for _, r := range runs {
		c := r.Figures
		waits += c.Watch.Waits
		faults := 0
		for _, n := range c.Faults {
			faults += n
		}
		const tenth = 100 * time.Millisecond
		fmt.Fprintf(b,
			"| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %v | %v | %v | %d | %d | %d |\n",
			r.title(), short(r.config.Duration), c.Asked, c.Granted, c.Permits, c.Watch.Probes,
			c.Watch.Granted, c.Lost, c.Writes, c.Refused, c.Undone, faults, c.Pauses,
			c.Outage.Round(tenth), c.Starved.Round(tenth), c.Watch.Undisturbed.Round(tenth),
			c.Watch.Waits, c.Excused, c.Violated)
	}
	b.WriteString(
		"\nAn outage is a time in which nobody was granted anything; the nemesis may have stopped all servers. Pauses are stops of clients, and stalls of more than 100 ms that they noticed. The machine counts as too busy while the laboratory's own process did not run. Permits are the acquisitions of semaphores that were granted. Probes acquire each key, and all permits at once, when the faults are over. Undisturbed is the longest time in which clients were at work, nothing was broken and the machine was not too busy. In such a time waits are judged, if they are long enough to show that a wake-up was lost. A run fails if it has no probe, or was never undisturbed for long enough.\n\n")
	if waits == 0 {
		b.WriteString("No wait was long enough to be judged: " +
			"only the simulator shows that no wake-up is lost.\n\n")
	}
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
		first := byKind[kind][0]
		fmt.Fprintf(b, "- %s: %d times, the first: %s\n", kind, len(byKind[kind]),
			oneLine(first.Text))
		if first.Because != "" {
			fmt.Fprintf(b, "  %s.\n", first.Because)
		}
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

// short leaves out zeros: 30m, not 30m0s.
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
