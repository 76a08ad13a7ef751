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
)

// Leak is something that was left behind.
type Leak struct {
	Why    Why
	Holder Party
}

// String says what was left behind.
func (l Leak) String() string {
	if l.Why == NoExpiry {
		return "held by " + l.Holder.String() + " without an expiry: it stays until it is removed"
	}
	text := "held by " + l.Holder.String() + ", whose process is gone"
	if l.Holder.Lease > 0 {
		text += "; its lease ends in " + duration(l.Holder.Lease)
	}
	return text
}

// Leaks returns what of each key was left behind. A backend also says nothing of the end of a lease
// that has less than a millisecond left. So it looks again at keys that seem to have no end, all
// together: a lease would have ended. If that fails, it returns what it knows without.
func (v *View) Leaks(ctx context.Context, keys []Key) (leaks [][]Leak, err error) {
	leaks = make([][]Leak, len(keys))
	var endless []string
	var places []int
	for i, k := range keys {
		if slices.ContainsFunc(k.Holders, Party.endless) {
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
				leaks[i] = append(leaks[i], Leak{ProcessGone, p})
			}
		}
	}
	return leaks, err
}

// endless reports whether the backend knows no end of the lease.
func (p Party) endless() bool { return p.Lease <= 0 }

// stillEndless returns the holders that have no end in both looks at a key.
func stillEndless(k, again Key) (leaks []Leak) {
	for _, p := range k.Holders {
		if p.endless() && slices.ContainsFunc(again.Holders, func(q Party) bool {
			return q.Value == p.Value && q.endless()
		}) {
			leaks = append(leaks, Leak{NoExpiry, p})
		}
	}
	return leaks
}

// beat is longer than what remains of a lease of which a backend says nothing.
const beat = 10 * time.Millisecond
