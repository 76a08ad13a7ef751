package deadlock

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Still looks at the keys of a cycle once more, and reports whether the same acquisitions hold them
// and the same ones wait. The first look saw each key at another moment. An owner value is never
// used again, so if both looks agree, all of them held and waited at the same time. The error is
// that of inspect.
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

// waits reports whether the process still waits for the key. Processes that want a permit take
// turns at its slots, so there any of them counts.
func (s Step) waits(k look.Key) bool {
	if k.Kind == look.Permit {
		return len(k.Waiters) > 0
	}
	return has(k.Waiters, s.Waits.Party)
}

func has(parties []look.Party, one look.Party) bool {
	return slices.ContainsFunc(parties, func(p look.Party) bool { return p.Value == one.Value })
}
