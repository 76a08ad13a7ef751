package sqltest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestSlotsAreApart has a resource that several may hold, each in a slot: a guard table keeps one
// row per slot.
func TestSlotsAreApart(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			guard := sqlfence.Table{Dialect: d.dialect}
			createThings(t, d, db, guard)
			write := func(slot string, token fence.Token) error {
				return guard.Guard(db).Do(t.Context(), slot, token,
					func(ctx context.Context) error {
						_, err := sqlfence.Tx(ctx).ExecContext(ctx, d.upsert("things"), slot,
							token.String())
						return err
					})
			}
			for _, step := range []struct {
				slot  string
				token fence.Token
				want  error
				value string
			}{
				{"pool/slot-1", 5, nil, "5"},
				{"pool/slot-2", 6, nil, "6"},
				{"pool/slot-1", 5, nil, "5"}, // a newer holder of another slot overtakes nobody
				{"pool/slot-1", 7, nil, "7"},
				{"pool/slot-1", 5, fence.ErrStale, "7"},
				{"pool/slot-2", 6, nil, "6"},
				{"pool/slot-2", 8, nil, "8"},
				{"pool/slot-2", 6, fence.ErrStale, "8"},
				{"pool/slot-1", 7, nil, "7"},
			} {
				if err := write(step.slot, step.token); !errors.Is(err, step.want) {
					t.Errorf("%s with token %d: %v; want %v", step.slot, step.token, err, step.want)
				}
				if v, err := d.value(db, "things")(t.Context(), step.slot); v != step.value ||
					err != nil {
					t.Errorf("%s has %q, %v; want %q", step.slot, v, err, step.value)
				}
			}
		})
	}
}
