package protocol

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire asks once for the claim, as [driver.Backend] describes. Without contention it takes one
// round trip with four plain commands. With contention it takes one round trip with a script, and
// the first time one more. A shared claim always takes one round trip with a script. ctx bounds the
// call, not its effect. Acquire fails with ErrInvalid for a claim that is not allowed, with
// ErrUnknown if the claim may have been granted, and otherwise with ErrUnavailable, also in
// quarantine and under another set (see [driver.Guarder] and [driver.Member]).
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
		a.request = b.doubts.next(claim.Owner)
		result, err := a.byScript(ctx, conn, false)
		b.doubts.acquired(a.request, err)
		return result, a.undo(ctx, err)
	}
	found := refused
	if !claim.Shared && !b.contended.recently(a.keys.Slot) {
		var result driver.Result
		result, found, err = a.plainly(ctx, conn)
		if err != nil || found == granted {
			return result, err
		}
		b.contended.now(a.keys.Slot)
	}
	result, err := a.byScript(ctx, conn, found == outOfTurn)
	if err == nil && result.State == driver.Busy {
		b.contended.now(a.keys.Slot)
	}
	if found != refused {
		err = maybe(err)
	}
	return result, err
}

// maybe returns err as the error of a call that may have had an effect, because an earlier request
// of the call has had one.
func maybe(err error) error {
	if e := (*driver.Error)(nil); errors.As(err, &e) && !e.Maybe {
		unknown := *e
		unknown.Maybe, unknown.Permanent, unknown.Invalid = true, driver.Permanent(e), false
		return &unknown
	}
	return err
}

// undo releases what a server in quarantine has granted. Such a grant is possible because the
// question whether the server may vote went out together with the request. The claim may ask again.
// undo returns err.
func (a *acquisition) undo(ctx context.Context, err error) error {
	if q := (*driver.QuarantineError)(nil); errors.As(err, &q) {
		if _, failure := a.b.Release(ctx, a.claim); failure != nil {
			return maybe(err)
		}
	}
	return err
}

// acquisition is one call of Acquire.
type acquisition struct {
	b           *Backend
	claim       driver.Claim // by value: a pointer would put it on the heap
	keys        Keys
	first, last string
	request     request // over a Transport that is not ordered
}

// plainOutcome is the outcome of an attempt without a script.
type plainOutcome int

const (
	granted   plainOutcome = iota
	refused                // the lock was not set
	undecided              // the lock was set, but there is more to do or to find out
	outOfTurn              // the lock was set, and somebody was waiting for it
)

// plainly tries to acquire with four commands, which cost the server less than a script. They are
// sent together but are not one step. They are still enough:
//
//   - SET NX alone decides who holds the lock.
//   - The fence only rises (GT), so a token is drawn once, even if others draw in between. When the
//     reply says that both ends of the block raised it, all of the block was new.
//   - GETRANGE shows that the lock was the owner's while the token was drawn. If not, the key was
//     removed before, and somebody else may have drawn a smaller token under the lock since: then
//     this is no grant.
//   - An acquisition that starts after this call has returned draws later, and so gets a larger
//     token.
//   - If somebody waits, the script hands the lock over before this call returns: until then nobody
//     works under it.
//
// The script also handles every other reply. To it a lock that is set is the owner's own.
func (a *acquisition) plainly(ctx context.Context, conn Conn) (driver.Result, plainOutcome, error) {
	server := conn.Server()
	memory, err := a.b.mayVote(ctx, conn, server, a.claim.TTL)
	if err != nil {
		return driver.Result{}, refused, err
	}
	space := scratches.Get().(*scratch)
	defer space.free()
	args := append(space.args[:0], "SET", a.keys.Lock, a.claim.Owner, "NX", "PX",
		milliseconds(a.claim.TTL),
		"EXISTS", a.keys.Queue,
		"ZADD", a.keys.Fence, "GT", "CH", a.first, "t", a.last, "t",
		"GETRANGE", a.keys.Lock, "0", lastByte)
	commands := append(space.commands[:0], args[0:6], args[6:8], args[8:16], args[16:20])
	if a.b.options.Replicas > 0 {
		commands = append(commands, a.b.waitCommand())
	}
	if a.b.testifies(memory) {
		commands = append(commands, memoryCommand)
	}
	replies := space.replies[:len(commands)]
	if err := conn.Do(ctx, commands, replies); err != nil {
		return driver.Result{}, undecided, err
	}
	if err := a.b.admitted(ctx, conn, server, a.claim.TTL, memory,
		&replies[len(replies)-1]); err != nil {
		return driver.Result{}, refused, err
	}
	if outcome := a.judge(replies); outcome != granted {
		return driver.Result{}, outcome, nil
	}
	if a.b.options.Replicas > 0 {
		if err := a.b.waited(conn, replies[4]); err != nil {
			return driver.Result{}, undecided, err
		}
	}
	return driver.Result{State: driver.Held, Token: max(a.claim.Token, 1)}, granted, nil
}

// judge returns what the replies to the four commands mean together.
func (a *acquisition) judge(replies []Reply) plainOutcome {
	set, waiting, raised, holder := &replies[0], &replies[1], &replies[2], &replies[3]
	switch {
	case set.Kind != String:
		return refused
	case waiting.Kind != Integer || waiting.Int != 0:
		return outOfTurn
	case raised.Kind != Integer || raised.Int != 2 && (raised.Int != 1 || a.first != a.last):
		return undecided
	case holder.Kind != String || holder.Str != a.claim.Owner:
		return undecided
	}
	return granted
}

// byScript acquires in one step.
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
		command = acquireScript().evalsha(command, "5")
		command = append(command, a.keys.Lock, a.keys.Queue, a.keys.Waiters, a.keys.Fence,
			a.keys.Readers)
	} else {
		command = acquireScript().evalsha(command, "6")
		command = append(command, a.keys.Lock, a.keys.Queue, a.keys.Waiters, a.keys.Fence,
			a.keys.Readers, a.keys.late(a.b.doubts.client, a.claim.Owner))
	}
	command = append(command, a.claim.Owner, milliseconds(a.claim.TTL), a.first, a.last,
		milliseconds(presence), ticket)
	if a.claim.Queue {
		routeAt = len(command)
	}
	command = append(command, route, mark)
	switch {
	case a.request.number > 0:
		command = append(command, shareMark(a.claim.Shared))
		command = a.b.doubts.numbered(command, a.request)
	case a.claim.Shared:
		command = append(command, shareMark(true))
	}
	reply, err := a.b.runOn(ctx, conn, &call{
		script:  acquireScript(),
		slot:    a.keys.Slot,
		command: command,
		vote:    a.claim.TTL,
		effect:  true,
		wait:    a.b.options.Replicas > 0,
		patient: true,
		route:   routeAt,
	})
	if err != nil {
		return driver.Result{}, a.b.whichKey(ctx, a.keys, err)
	}
	return acquired(reply, &a.claim, presence)
}

// block returns the first and the last token that a claim asks for.
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
func acquired(reply Reply, claim *driver.Claim, presence time.Duration) (driver.Result, error) {
	switch {
	case reply.Kind == Integer && reply.Int > 0:
		token := driver.Token(reply.Int)
		if exhausted(token, claim) {
			return driver.Result{}, fenceFailure(claim.Key)
		}
		return driver.Result{State: driver.Held, Token: token}, nil
	case reply.Kind == List && len(reply.List) == 4 && reply.List[0].Kind == String:
		result := driver.Result{
			State:     driver.Busy,
			Holder:    shortened(reply.List[0].Str),
			ExpiresIn: time.Duration(max(0, reply.List[1].Int)) * time.Millisecond,
			Place:     int(reply.List[2].Int),
		}
		if result.Place > 0 {
			result.Presence = presence
			result.Clock = uint64(max(0, reply.List[3].Int))
		}
		return result, nil
	}
	return driver.Result{}, strange("acquire", reply)
}
