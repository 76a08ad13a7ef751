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

// Leaks returns what of the key was left behind. A backend also says nothing of the end of a lease
// that has less than a millisecond left. So of such a key it looks again: a lease would have ended.
func (v *View) Leaks(ctx context.Context, k Key) (leaks []Leak, err error) {
	endless := slices.DeleteFunc(slices.Clone(k.Holders), func(p Party) bool { return p.Lease > 0 })
	if len(endless) > 0 {
		select {
		case <-time.After(beat):
		case <-ctx.Done():
			return nil, &driver.Error{Err: ctx.Err()}
		}
		again, err := v.inspect(ctx, k.Full)
		if err != nil {
			return nil, err
		}
		for _, p := range endless {
			if slices.ContainsFunc(again.Holders, func(q Party) bool {
				return q.Value == p.Value && q.Lease <= 0
			}) {
				leaks = append(leaks, Leak{NoExpiry, p})
			}
		}
	}
	for _, p := range k.Holders {
		if p.Life == Gone {
			leaks = append(leaks, Leak{ProcessGone, p})
		}
	}
	return leaks, nil
}

// beat is longer than what remains of a lease of which a backend says nothing.
const beat = 10 * time.Millisecond
