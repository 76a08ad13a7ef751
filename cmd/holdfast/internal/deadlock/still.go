package deadlock

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Still looks at the keys of a cycle once more, and reports whether the same acquisitions hold them
// and the same wait. As an owner value is never used again, all of them then did so at the same
// time: before, each key was looked at in another moment. The error is that of inspect.
func (c Cycle) Still(ctx context.Context,
	inspect func(ctx context.Context, full string) (look.Key, error)) (bool, error) {
	for i, s := range c {
		if s.Waits.Full == "" {
			continue
		}
		k, err := inspect(ctx, s.Waits.Full)
		if err != nil {
			return false, err
		}
		if !has(k.Holders, c[(i+1)%len(c)].Holds.Party) || !s.waits(k) {
			return false, nil
		}
	}
	return true, nil
}

// waits reports whether the process still waits for the key. Those who want a permit take turns at
// its slots, so there anybody counts.
func (s Step) waits(k look.Key) bool {
	if k.Kind == look.Permit {
		return len(k.Waiters) > 0
	}
	return has(k.Waiters, s.Waits.Party)
}

func has(parties []look.Party, one look.Party) bool {
	return slices.ContainsFunc(parties, func(p look.Party) bool { return p.Value == one.Value })
}
