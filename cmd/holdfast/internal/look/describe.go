package look

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Ages says how long ago something was.
type Ages func(time.Time) time.Duration

func (a Ages) of(p Party) string {
	if p.Since.IsZero() {
		return unknown
	}
	return duration(a(p.Since))
}

// String says in printable text who the party is.
func (p Party) String() string {
	switch {
	case p.Value == "":
		return "an empty value of another library"
	case p.Cut:
		return foreign(p.Value) + " of another library (its value is too long to name)"
	case p.Foreign() && p.Count > 0:
		return cut(p.Value, longestHolder) + " of another library, " + times(p.Count)
	case p.Foreign():
		return foreign(p.Value) + " of another library"
	case p.Label == "":
		return fmt.Sprintf("pid %d on %s", p.PID, Shown(p.Host))
	default:
		return fmt.Sprintf("%s (pid %d on %s)", Shown(p.Label), p.PID, Shown(p.Host))
	}
}

// times says how often a lock is held.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// life says what is known of the process.
func (p Party) life() string {
	switch {
	case p.Life == Gone:
		return "its process on this host is gone"
	case p.Life == Lives:
		return "its process on this host lives"
	case p.Foreign():
		return "whether that is alive is not known"
	default:
		return "on another host; its lease is renewed while it lives"
	}
}

// lease says what remains of the lease of a holder.
func (p Party) lease() string {
	switch {
	case p.Endless:
		return "has no end: it stays until it is removed"
	case p.Lease <= 0:
		return "no end is known; it may have none"
	case p.Foreign():
		return duration(p.Lease) + ", unless renewed"
	default:
		return duration(p.Lease) + ", unless renewed before"
	}
}

// Describe says all that is known of the key, in lines of printable text. hide takes secrets out of
// an error.
func (k Key) Describe(ages Ages, hide func(string) string) string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	say("%s", k.Name)
	switch k.Kind {
	case Permit:
		say("  is a permit: one slot of the semaphore %s, which is full when all are held",
			Shown(k.Text))
	case Gate:
		say("  is a gate of the semaphore %s: whoever has it is next to get one of %d permits",
			Shown(k.Text), k.Permits)
	case Scout:
		say("  tells those who wait for permits of %s whether others know another number of them",
			Shown(k.Text))
	}
	say("  key      %s", Shown(k.Full))
	switch {
	case k.Unknown:
		say("  held by  not known")
	case len(k.Holders) == 0:
		say("  held by  nobody")
	case k.Shared:
		say("  shared   by %d, each with a lease of its own", len(k.Holders))
	}
	for _, p := range k.Holders {
		k.describeHolder(p, ages, say)
	}
	if !k.Unknown {
		say("  waiting  %d", len(k.Waiters))
	}
	for i, w := range k.Waiters {
		present := ""
		if w.Lease > 0 {
			present = ", counts as present for " + duration(w.Lease) + " more"
		}
		say("    %d.  %s, %s%s", i+1, w, w.waits(), present)
	}
	for i, n := range k.Nodes {
		head := "         "
		if i == 0 {
			head = "  nodes  "
		}
		say("%s  %s: %s", head, Shown(n.Name), n.describe(k, hide))
	}
	return text.String()
}

func (k Key) describeHolder(p Party, ages Ages, say func(string, ...any)) {
	say("  held by  %s", p)
	say("  alive    %s", p.life())
	if !p.Since.IsZero() {
		say("  since    %s, %s ago", p.Since.Local().Format("2006-01-02 15:04:05"),
			duration(ages(p.Since)))
	}
	say("  lease    %s", p.lease())
	if p.Token > 0 {
		say("  token    %s", p.Token)
	}
	if !p.Foreign() {
		say("  owner    %s", Shown(p.Value))
	}
}

// waits says what is known of the process of a waiter.
func (p Party) waits() string {
	if p.Life == Elsewhere {
		return "on another host"
	}
	return "its process on this host " + map[Life]string{Gone: "is gone", Lives: "lives"}[p.Life]
}

// describe says what a node answers, beside what the set as a whole says of the key.
func (n Node) describe(k Key, hide func(string) string) string {
	switch {
	case n.Err != nil:
		cause := strings.TrimPrefix(n.Err.Error(), n.Name+": ")
		return "does not answer: " + Line(hide(cause))
	case len(n.Holders) == 0 && len(k.Holders) > 0:
		return "is behind: knows no holder" + n.queue()
	case len(n.Holders) == 0:
		return "knows no holder" + n.queue()
	}
	var says []string
	for _, p := range n.Holders {
		verb := "granted it to"
		if !slices.ContainsFunc(k.Holders, func(h Party) bool { return h.Value == p.Value }) {
			verb = "differs: granted it to"
		}
		says = append(says, fmt.Sprintf("%s %s, lease %s", verb, p, leaseCell(p)))
	}
	return strings.Join(says, "; ") + n.queue()
}

func (n Node) queue() string {
	if n.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf("; %d waiting", n.Waiting)
}
