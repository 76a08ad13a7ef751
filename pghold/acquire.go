package pghold

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

const acquireStatement = `SELECT state, granted, encode(holder, 'hex'), remaining, place, ` +
	`clock, notices FROM holdfast.acquire($1::bytea, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, ` +
	`$7::bigint, $8::boolean, $9::text, $10::boolean, $11::bigint, $12::text, ` +
	`$13::bigint, $14::bigint)`

// Acquire asks once for the claim, as driver.Backend describes, in one round trip, or two if it is
// the first. A busy claim with Queue set is queued and present for [Presence], or for its TTL if
// that is shorter. ctx bounds the wait, not the request. Acquire fails with ErrInvalid for a claim
// that is not allowed, with ErrUnknown if the request was sent and no answer came, and otherwise
// with ErrUnavailable. [ErrMissing] is in the error if the tables are missing or of another
// version, and [ErrReadOnly] after [WithReadOnly]. In quarantine and under another set it fails as
// driver.Guarder and driver.Member describe.
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := b.claims(&claim); err != nil {
		return driver.Result{}, err
	}
	if claim.Queue && b.ready(ctx) == nil {
		b.channel.prepare(ctx, b)
	}
	return inLine(ctx, b, claim.Key, "", func(ctx context.Context) (driver.Result, error) {
		if err := b.matches(ctx); err != nil {
			return driver.Result{}, err
		}
		number, late := b.doubts.next(claim.Owner)
		result, err := b.acquire(ctx, &claim, number, late)
		b.doubts.returned(claim.Owner, number, late, err)
		return result, err
	})
}

// claims returns an error if no claim like this may be sent.
func (b *Backend) claims(claim *driver.Claim) error {
	if err := b.writes(); err != nil {
		return err
	}
	if err := validate(claim); err != nil {
		return err
	}
	return b.underGuard(claim.TTL)
}

func (b *Backend) acquire(ctx context.Context, claim *driver.Claim,
	number, late int64) (driver.Result, error) {
	guard, member := b.terms()
	presence := min(b.config.presence, claim.TTL)
	var ticket any
	if claim.Queue {
		ticket = int64(claim.Ticket)
	}
	args := []any{[]byte(claim.Key), []byte(claim.Owner), microseconds(claim.TTL),
		microseconds(presence), int64(claim.Token), int64(max(claim.Block, 1)), ticket,
		claim.Shared, b.id, b.channel.live.Load(), guard, member, number, late}
	var state, notices string
	var granted, remaining, place, clock int64
	var holder unhexed
	err := b.query(ctx, true, acquireStatement, args, func(scan func(...any) error) error {
		return scan(&state, &granted, &holder, &remaining, &place, &clock, &notices)
	})
	if err != nil {
		return driver.Result{}, err
	}
	if err := b.refusal(state, remaining, notices); err != nil {
		return driver.Result{}, err
	}
	b.tellAll(notices)
	if state == "held" {
		return driver.Result{State: driver.Held, Token: driver.Token(granted)}, nil
	}
	result := driver.Result{State: driver.Busy, Holder: string(holder), ExpiresIn: span(remaining)}
	if place > 0 {
		result.Place, result.Presence, result.Clock = int(place), presence, uint64(clock)
	}
	return result, nil
}
