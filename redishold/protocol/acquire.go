package protocol

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire asks once for the claim, as [driver.Backend] describes.
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := validate(&claim); err != nil {
		return driver.Result{}, err
	}
	keys := KeysOf(claim.Key)
	presence := min(Presence, claim.TTL)
	first, last := block(&claim)
	c := call{
		script: acquireScript,
		slot:   keys.Slot,
		keys:   []string{keys.Lock, keys.Queue, keys.Waiters, keys.Fence},
		args:   []string{claim.Owner, milliseconds(claim.TTL), first, last, milliseconds(presence), "", ""},
		vote:   claim.TTL,
		effect: true,
		wait:   b.options.Replicas > 0,
	}
	if claim.Queue {
		if err := b.ready(ctx); err != nil {
			return driver.Result{}, err
		}
		conn, err := b.transport.Conn(ctx, keys.Slot)
		if err != nil {
			return driver.Result{}, err
		}
		c.args[5] = strconv.FormatUint(claim.Ticket, 10)
		c.args[6] = conn.Route(ctx, keys.Slot)
	}
	reply, err := b.run(ctx, &c)
	if err != nil {
		return driver.Result{}, err
	}
	return acquired(reply, presence)
}

// block is the range of tokens that a claim would like.
func block(claim *driver.Claim) (first, last string) {
	// Token 0 is none.
	from := max(uint64(claim.Token), 1)
	first = strconv.FormatUint(from, 10)
	if claim.Block <= 1 {
		return first, first
	}
	return first, strconv.FormatUint(from+claim.Block-1, 10)
}

// acquired reads the reply of acquire.lua.
func acquired(reply Reply, presence time.Duration) (driver.Result, error) {
	switch {
	case reply.Kind == Integer && reply.Int > 0:
		return driver.Result{State: driver.Held, Token: driver.Token(reply.Int)}, nil
	case reply.Kind == List && len(reply.List) == 3 && reply.List[0].Kind == String:
		result := driver.Result{
			State:     driver.Busy,
			Holder:    reply.List[0].Str,
			ExpiresIn: time.Duration(max(0, reply.List[1].Int)) * time.Millisecond,
			Place:     int(reply.List[2].Int),
		}
		if result.Place > 0 {
			result.Presence = presence
		}
		return result, nil
	}
	return driver.Result{}, strange("acquire", reply)
}
