package pghold

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

const releaseStatement = `SELECT state, notices ` +
	`FROM holdfast.release($1::bytea, $2::bytea, $3::bigint, $4::bigint, $5::text)`

// Release frees the key or leaves its queue, as driver.Backend describes. The same round trip
// grants the key to the next waiter. If an earlier request about the claim may still be on its way
// because its connection has broken, the server ignores that request for a minute. ctx bounds the
// wait: a release is sent even if nobody waits for it any more. Release fails with ErrUnknown if
// the request was sent and no answer came, and otherwise with ErrUnavailable.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := b.writes(); err != nil {
		return driver.Result{}, err
	}
	// TTL and tokens do not matter to a release.
	if err := validate(&driver.Claim{Key: claim.Key, Owner: claim.Owner,
		TTL: Presence}); err != nil {
		return driver.Result{}, err
	}
	return inLine(ctx, b, claim.Key, claim.Owner,
		func(ctx context.Context) (driver.Result, error) {
			number, late := b.doubts.next(claim.Owner)
			result, err := b.release(ctx, &claim, number, late)
			b.doubts.returned(claim.Owner, number, late, err)
			return result, err
		})
}

func (b *Backend) release(ctx context.Context, claim *driver.Claim,
	number, late int64) (driver.Result, error) {
	var state, notices string
	err := b.query(ctx, true, releaseStatement, []any{[]byte(claim.Key), []byte(claim.Owner),
		number, late, b.id}, func(scan func(...any) error) error { return scan(&state, &notices) })
	if err != nil {
		return driver.Result{}, err
	}
	b.tellAll(notices)
	switch state {
	case "held":
		return driver.Result{State: driver.Held}, nil
	case "busy":
		return driver.Result{State: driver.Busy}, nil
	case "lost":
		return driver.Result{State: driver.Lost}, nil
	}
	return driver.Result{}, &driver.Error{Maybe: true,
		Err: fmt.Errorf("unexpected answer to a release: %.40q", state)}
}
