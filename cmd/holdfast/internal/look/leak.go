package look

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Why says why something counts as left behind.
type Why string

const (
	// NoExpiry: the key has no end, so it stays until somebody removes it.
	NoExpiry Why = "no-expiry"

	// ProcessGone: the process that holds the key was on this host, and is gone.
	ProcessGone Why = "process-gone"

	// WaiterGone: the process that waits for the key was on this host, and is gone.
	WaiterGone Why = "waiter-gone"

	// HeldLong: the key is held for longer than the operator calls usual.
	HeldLong Why = "held-long"
)

// Leak is something that was left behind.
type Leak struct {
	Why   Why
	Party Party         // the holder, or the waiter
	For   time.Duration // of HeldLong: for how long at least
}

// String says what was left behind.
func (l Leak) String() string {
	who := l.Party.String()
	switch l.Why {
	case NoExpiry:
		return "held by " + who + " without an expiry: it stays until it is removed"
	case HeldLong:
		return "held by " + who + " for " + duration(l.For) + " at least; " + l.Party.life()
	case WaiterGone:
		text := "waited for by " + who + ", whose process is gone"
		if l.Party.Lease > 0 {
			text += "; it counts as present for " + duration(l.Party.Lease) + " more"
		}
		return text
	}
	text := "held by " + who + ", whose process is gone"
	if l.Party.Lease > 0 {
		text += "; its lease ends in " + duration(l.Party.Lease)
	}
	return text
}

// TooLong returns who holds the key for longer than limit, as far as m knows.
func (k Key) TooLong(limit time.Duration, m *Memory, now time.Time) (leaks []Leak) {
	for _, p := range k.Holders {
		since := m.Since(k, p, now)
		if held := now.Sub(since); !since.IsZero() && held > limit {
			leaks = append(leaks, Leak{HeldLong, p, held})
		}
	}
	return leaks
}

// Leaks returns what of each key was left behind. A lease whose end is not known, as on etcd, does
// have an end. Another library may set the end of a lease in a second step, so Leaks looks again at
// keys that have no end, all together. If that look fails, it returns what it knows without it.
func (v *View) Leaks(ctx context.Context, keys []Key) (leaks [][]Leak, err error) {
	leaks = make([][]Leak, len(keys))
	var endless []string
	var places []int
	for i, k := range keys {
		if slices.ContainsFunc(k.Holders, func(p Party) bool { return p.Endless }) {
			endless, places = append(endless, k.Full), append(places, i)
		}
	}
	if len(endless) > 0 {
		select {
		case <-time.After(beat):
			_, err = v.each(ctx, endless, func(i int, again Key) bool {
				place := places[i]
				leaks[place] = stillEndless(keys[place], again)
				return true
			})
		case <-ctx.Done():
			err = &driver.Error{Err: ctx.Err()}
		}
	}
	for i, k := range keys {
		for _, p := range k.Holders {
			if p.Life == Gone {
				leaks[i] = append(leaks[i], Leak{Why: ProcessGone, Party: p})
			}
		}
		for _, p := range k.Waiters {
			if p.Life == Gone {
				leaks[i] = append(leaks[i], Leak{Why: WaiterGone, Party: p})
			}
		}
	}
	return leaks, err
}

// stillEndless returns the holders that have no end in both looks at a key.
func stillEndless(k, again Key) (leaks []Leak) {
	for _, p := range k.Holders {
		if p.Endless && slices.ContainsFunc(again.Holders, func(q Party) bool {
			return q.Value == p.Value && q.Endless
		}) {
			leaks = append(leaks, Leak{Why: NoExpiry, Party: p})
		}
	}
	return leaks
}

// beat is how long another library has for the second step, at least.
const beat = 10 * time.Millisecond
