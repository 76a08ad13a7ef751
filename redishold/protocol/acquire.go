package protocol

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire asks once for the claim, as [driver.Backend] describes. Without contention it takes one round trip
// of three plain commands; else one, the first time two, of a script.
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := validate(&claim); err != nil {
		return driver.Result{}, err
	}
	if err := b.ready(ctx); err != nil {
		return driver.Result{}, err
	}
	a := acquisition{b: b, claim: claim, keys: KeysOf(claim.Key)}
	a.first, a.last = block(&claim)
	conn, err := b.transport.Conn(ctx, a.keys.Slot)
	if err != nil {
		return driver.Result{}, err
	}
	if !b.transport.Ordered() {
		start := time.Now()
		result, err := a.byScript(ctx, conn, false)
		b.doubts.note(claim.Owner, err, time.Since(start))
		return result, a.undo(ctx, err)
	}
	barged := false
	if !b.contended.recently(a.keys.Slot) {
		result, verdict, err := a.plainly(ctx, conn)
		if err != nil || verdict == granted {
			return result, err
		}
		barged = verdict == outOfTurn
		b.contended.now(a.keys.Slot)
	}
	result, err := a.byScript(ctx, conn, barged)
	if err == nil && result.State == driver.Busy {
		b.contended.now(a.keys.Slot)
	}
	return result, err
}

// undo releases what a server in quarantine has granted: it was asked whether it may vote together with the
// request. It returns err.
func (a *acquisition) undo(ctx context.Context, err error) error {
	if q := (*driver.QuarantineError)(nil); errors.As(err, &q) {
		a.b.Release(context.WithoutCancel(ctx), a.claim)
	}
	return err
}

// acquisition is one call of Acquire.
type acquisition struct {
	b           *Backend
	claim       driver.Claim // by value: a pointer would put it on the heap
	keys        Keys
	first, last string
}

// plainVerdict is how an attempt without a script went.
type plainVerdict int

const (
	granted plainVerdict = iota
	undecided
	outOfTurn // the lock is ours, but somebody was waiting for it
)

// plainly tries it with three commands, which cost the server less than half of what a script costs. They are
// sent together and are not one step, so here is why that is enough:
//
//   - SET NX decides who holds the lock, all by itself.
//   - The fence only rises (GT), so a token is drawn once, whoever draws in between. When the reply
//     says that both ends of the block raised it, all of the block was new.
//   - Whoever acquires after this call has returned draws after it, and so gets a larger token.
//   - If somebody waits, the script puts it right before this call returns: until then nobody works under the
//     lock.
//
// Whatever else comes back is left to the script, too, to which a lock that is set is the owner's own.
func (a *acquisition) plainly(ctx context.Context, conn Conn) (driver.Result, plainVerdict, error) {
	if err := a.b.admit(conn.Server(), a.claim.TTL); err != nil {
		return driver.Result{}, undecided, err
	}
	space := scratches.Get().(*scratch)
	defer space.free()
	args := append(space.args[:0], "SET", a.keys.Lock, a.claim.Owner, "NX", "PX", milliseconds(a.claim.TTL),
		"EXISTS", a.keys.Queue,
		"ZADD", a.keys.Fence, "GT", "CH", a.first, "t", a.last, "t")
	commands := append(space.commands[:0], args[0:6], args[6:8], args[8:16])
	if a.b.options.Replicas > 0 {
		commands = append(commands, a.b.waitCommand())
	}
	replies := space.replies[:len(commands)]
	if err := conn.Do(ctx, commands, replies); err != nil {
		return driver.Result{}, undecided, err
	}
	set, waiting, raised := &replies[0], &replies[1], &replies[2]
	switch {
	case set.Kind != String:
		return driver.Result{}, undecided, nil
	case waiting.Kind != Integer || waiting.Int != 0:
		return driver.Result{}, outOfTurn, nil
	case raised.Kind != Integer || raised.Int != 2 && (raised.Int != 1 || a.first != a.last):
		return driver.Result{}, undecided, nil
	}
	if a.b.options.Replicas > 0 {
		if err := a.b.waited(conn, replies[3]); err != nil {
			return driver.Result{}, undecided, err
		}
	}
	return driver.Result{State: driver.Held, Token: max(a.claim.Token, 1)}, granted, nil
}

// byScript does it in one step.
func (a *acquisition) byScript(ctx context.Context, conn Conn, barged bool) (driver.Result, error) {
	presence := min(Presence, a.claim.TTL)
	ticket, route, routeAt, mark := "", "", 0, ""
	if a.claim.Queue {
		ticket = strconv.FormatUint(a.claim.Ticket, 10)
		route = conn.Route(ctx, a.keys.Slot)
	}
	if barged {
		mark = "1"
	}
	space := scratches.Get().(*scratch)
	defer space.free()
	command := Command(space.args[:0])
	if a.b.transport.Ordered() {
		command = acquireScript.evalsha(command, "4")
		command = append(command, a.keys.Lock, a.keys.Queue, a.keys.Waiters, a.keys.Fence)
	} else {
		command = acquireScript.evalsha(command, "5")
		command = append(command, a.keys.Lock, a.keys.Queue, a.keys.Waiters, a.keys.Fence, endedKey(a.keys.Slot, a.claim.Owner))
	}
	command = append(command, a.claim.Owner, milliseconds(a.claim.TTL), a.first, a.last, milliseconds(presence), ticket)
	if a.claim.Queue {
		routeAt = len(command)
	}
	command = append(command, route, mark)
	reply, err := a.b.runOn(ctx, conn, &call{
		script:  acquireScript,
		slot:    a.keys.Slot,
		command: command,
		vote:    a.claim.TTL,
		effect:  true,
		wait:    a.b.options.Replicas > 0,
		route:   routeAt,
	})
	if err != nil {
		return driver.Result{}, err
	}
	return acquired(reply, presence)
}

// block is the range of tokens that a claim would like.
func block(claim *driver.Claim) (first, last string) {
	from := max(uint64(claim.Token), 1) // 0 is no token
	if claim.Block <= 1 {
		first = strconv.FormatUint(from, 10)
		return first, first
	}
	// One allocation for both.
	var space [40]byte
	digits := strconv.AppendUint(space[:0], from, 10)
	half := len(digits)
	both := string(strconv.AppendUint(digits, from+claim.Block-1, 10))
	return both[:half], both[half:]
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
