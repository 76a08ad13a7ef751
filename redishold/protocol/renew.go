package protocol

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// renewChunk is how many leases one run of a script renews. The server serves nobody else
	// meanwhile.
	renewChunk = 100

	// shardPatience is how long Renew waits for slow shards after the first one has answered. If
	// three times the time of that one is longer, it waits for so long. Claims of a late shard are
	// Unknown, and the kernel asks again. Waiting longer could cost the others their validity.
	shardPatience = 250 * time.Millisecond
)

// Renew extends every claim that still holds its key, as [driver.Backend] describes. On a cluster
// it asks the shards side by side. A shard that does not answer leaves its claims Unknown and does
// not delay the others. ctx bounds the call. Renew fails with ErrUnknown or ErrUnavailable if
// nothing is known of any claim. Otherwise the error of a claim is in its result; a claim that is
// not allowed has ErrInvalid there.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	results := make([]driver.Result, len(claims))
	shards := make(map[string]*renewal)
	cluster := b.transport.Cluster()
	var slot uint16
	var r *renewal
	for i := range claims {
		claim := &claims[i]
		if err := validate(claim); err != nil {
			results[i].Err = err
			continue
		}
		// A TTL over the guard concerns this claim alone, so it is checked before claims are sent
		// together.
		if err := b.admit(nil, claim.TTL); err != nil {
			results[i].Err = err
			continue
		}
		// Without a cluster all slots lead to the same server, and one script may have all keys.
		if r == nil || cluster {
			slot = Slot(claim.Key)
			name := b.transport.Shard(slot)
			if r = shards[name]; r == nil {
				r = &renewal{b: b, slot: slot}
				shards[name] = r
			}
		}
		r.add(i, slot, claim, len(claims)-i)
	}
	for _, r := range shards {
		for _, p := range r.parts {
			p.complete(claims)
		}
	}
	switch len(shards) {
	case 0:
		return results, nil
	case 1:
		for _, r := range shards {
			r.answerInto(results)
			if err := r.send(ctx); err != nil {
				if r.size() == len(claims) {
					return nil, err
				}
				r.fail(err)
			}
			r.copyTo(results)
		}
		return results, nil
	}
	return results, b.renewShards(ctx, shards, results)
}

// renewShards sends one renewal to each shard, and returns what is answered in time.
func (b *Backend) renewShards(ctx context.Context, shards map[string]*renewal,
	results []driver.Result) error {
	start := time.Now()
	done := make(chan *renewal, len(shards)) // room for all: late ones must not hang
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, r := range shards {
		for _, part := range r.parts {
			for _, i := range part.claims {
				results[i].Err = &driver.Error{Maybe: true,
					Err: errors.New("its shard did not answer while another did")}
			}
		}
		go func() {
			if err := r.send(ctx); err != nil {
				r.fail(err)
			}
			done <- r
		}()
	}
	var patience <-chan time.Time
	for range shards {
		select {
		case r := <-done:
			r.copyTo(results)
		case <-patience:
			return nil
		}
		if patience == nil {
			timer := time.NewTimer(max(shardPatience, 3*time.Since(start)))
			defer timer.Stop()
			patience = timer.C
		}
	}
	return nil
}

// renewal is the claims of a batch that go to one shard.
type renewal struct {
	b     *Backend
	slot  uint16 // of any of them
	ttl   time.Duration
	parts []*renewPart
	open  map[partKind]*renewPart // with room for more
	last  *renewPart              // the one of these that was last added to
}

// partKind is which claims one run of renew.lua may have, or of keep.lua, if they are shared.
type partKind struct {
	slot   uint16
	shared bool
}

// renewPart is one run of a script.
type renewPart struct {
	call
	shared  bool         // as the claims are
	claims  []int        // indexes
	drew    bool         // it is a run of turn.lua that draws tokens
	claim   driver.Claim // of a run of turn.lua
	results []driver.Result
}

// answerInto has the parts write their results directly into results, if they can. It is for a lone
// renewal: of several, one may be late, and must not write there any more.
func (r *renewal) answerInto(results []driver.Result) {
	for _, p := range r.parts {
		first, n := p.claims[0], len(p.claims)
		if p.claims[n-1] == first+n-1 {
			p.results = results[first : first+n]
		}
	}
}

func (r *renewal) size() (n int) {
	for _, p := range r.parts {
		n += len(p.claims)
	}
	return n
}

// add puts a claim into a part. left is how many are still to be added, with this one.
func (r *renewal) add(index int, slot uint16, claim *driver.Claim, left int) {
	r.ttl = max(r.ttl, claim.TTL)
	if claim.Block > 0 {
		r.parts = append(r.parts, turnPart(index, slot, claim))
		return
	}
	p := r.last
	if p == nil || p.slot != slot || p.shared != claim.Shared {
		p = r.open[partKind{slot, claim.Shared}]
	}
	if p == nil || len(p.claims) == renewChunk {
		script := renewScript()
		if claim.Shared {
			script = keepScript()
		}
		p = &renewPart{shared: claim.Shared,
			call: call{script: script, slot: slot, vote: claim.TTL, effect: true}}
		if !r.b.transport.Cluster() {
			p.claims = make([]int, 0, min(left, renewChunk))
		}
		r.parts = append(r.parts, p)
		if r.open == nil {
			r.open = make(map[partKind]*renewPart)
		}
		r.open[partKind{slot, claim.Shared}] = p
	}
	r.last = p
	p.claims = append(p.claims, index)
}

func turnPart(index int, slot uint16, claim *driver.Claim) *renewPart {
	first, last := block(claim)
	return &renewPart{
		claims: []int{index},
		call: turnCall(claim.Key, claim.Owner, milliseconds(claim.TTL), slot, claim.TTL,
			first, last, shareMark(claim.Shared)),
		drew:  true,
		claim: *claim, // the caller may use its own again before a late shard answers
	}
}

// shareMark is the argument that says whether the claim is shared.
func shareMark(shared bool) string {
	if shared {
		return "1"
	}
	return ""
}

// turnCall is a run of turn.lua.
func turnCall(key, owner, ttl string, slot uint16, vote time.Duration,
	first, last, share string) call {
	keys := KeysOf(key)
	command := turnScript().evalsha(make(Command, 0, 13), "5")
	command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
		owner, ttl, first, last, share)
	return call{script: turnScript(), slot: slot, command: command, vote: vote, effect: true}
}

// complete makes the command of a run of renew.lua or keep.lua when all its claims are known.
func (p *renewPart) complete(claims []driver.Claim) {
	if p.command != nil {
		return
	}
	n := len(p.claims)
	if p.shared {
		p.command = p.script.evalsha(make(Command, 0, 3+4*n), strconv.Itoa(2*n))
	} else {
		p.command = p.script.evalsha(make(Command, 0, 3+3*n), strconv.Itoa(n))
	}
	for _, i := range p.claims {
		p.command = append(p.command, claims[i].Key)
		if p.shared {
			p.command = append(p.command, KeysOf(claims[i].Key).Readers)
		}
	}
	for _, i := range p.claims {
		p.command = append(p.command, claims[i].Owner, milliseconds(claims[i].TTL))
	}
}

// send sends all parts as one pipeline. An error is about all of them.
func (r *renewal) send(ctx context.Context) error {
	b := r.b
	conn, err := b.transport.Conn(ctx, r.slot)
	if err != nil {
		return err
	}
	server := conn.Server()
	memory, err := b.mayVote(ctx, conn, server, r.ttl)
	if err != nil {
		return err
	}
	commands := make([]Command, 0, len(r.parts)+4)
	vouch := b.hasToVouch(conn, r.ttl)
	if vouch {
		commands = append(commands, infoCommands...)
	}
	for _, p := range r.parts {
		commands = append(commands, p.command)
	}
	if b.options.Replicas > 0 {
		commands = append(commands, b.waitCommand())
	}
	if b.testifies(memory) {
		commands = append(commands, memoryCommand)
	}
	replies := make([]Reply, len(commands))
	if err := conn.Do(ctx, commands, replies); err != nil {
		return err
	}
	if vouch {
		if err := b.vouch(conn, replies[:len(infoCommands)]); err != nil {
			return err
		}
		replies = replies[len(infoCommands):]
	}
	if err := b.admitted(ctx, conn, server, r.ttl, memory, &replies[len(replies)-1]); err != nil {
		return err
	}
	for i, p := range r.parts {
		r.take(ctx, conn, p, replies[i])
	}
	if b.options.Replicas > 0 {
		if err := b.waited(conn, replies[len(r.parts)]); err != nil {
			r.doubt(err)
		}
	}
	return nil
}

// doubt makes the results of claims that were renewed unknown, because replicas may not have the
// renewal.
func (r *renewal) doubt(err error) {
	for _, p := range r.parts {
		for i := range p.results {
			if p.results[i].State == driver.Held {
				p.results[i] = driver.Result{Err: err}
			}
		}
	}
}

// take reads the reply to a part.
func (r *renewal) take(ctx context.Context, conn Conn, p *renewPart, reply Reply) {
	if reply.Kind == Failure {
		if len(r.parts) > 1 {
			// The other results are known, and must not wait long for this one.
			bounded, cancel := context.WithTimeout(ctx, shardPatience)
			defer cancel()
			ctx = bounded
		}
		var sent bool
		if reply, sent = r.sendAgain(ctx, conn, p, reply); !sent {
			return
		}
	}
	p.clear()
	if p.script == turnScript() {
		p.results[0] = turned(reply, p.drew)
		if exhausted(p.results[0].Token, &p.claim) {
			p.results[0] = driver.Result{Err: fenceFailure(p.claim.Key)}
		}
		return
	}
	r.takeStates(ctx, conn, p, reply)
}

// sendAgain sends a part again that met a redirection or a missing script. If the claims of the
// part are not all on one server, it sends each by itself. It returns the reply to the part, or
// false if there is none and all its claims have a result.
func (r *renewal) sendAgain(ctx context.Context, conn Conn, p *renewPart,
	reply Reply) (_ Reply, sent bool) {
	p.wait = r.b.options.Replicas > 0
	var err error = r.b.failure(conn, reply, p.effect)
	if parseRedirect(reply.Str).address != "" || IsServerError(err, "NOSCRIPT") {
		reply, err = r.b.run(ctx, &p.call)
	}
	switch {
	case err == nil:
		return reply, true
	case len(p.claims) > 1 && (IsServerError(err, "TRYAGAIN") ||
		IsServerError(err, "CROSSSLOT")):
		r.singly(ctx, conn, p)
	default:
		if len(p.claims) == 1 {
			err = r.b.whichKey(ctx, KeysOf(p.command[3]), err)
		}
		p.fail(err)
	}
	return Reply{}, false
}

// takeStates reads the reply of renew.lua or keep.lua: a letter for each claim.
func (r *renewal) takeStates(ctx context.Context, conn Conn, p *renewPart, reply Reply) {
	states, failures := reply, []Reply(nil)
	if reply.Kind == List && len(reply.List) > 0 {
		states, failures = reply.List[0], reply.List[1:]
	}
	if states.Kind != String || len(states.Str) != len(p.claims) {
		p.fail(strange("renew", reply))
		return
	}
	var again []int
	for i := range p.results {
		switch result := &p.results[i]; states.Str[i] {
		case '1':
			result.State = driver.Held
		case '0':
			result.State = driver.Lost
		case 's', 'a':
			again = append(again, i) // another script has to say
		default:
			text := "?"
			if len(failures) > 0 {
				text, failures = failures[0].Str, failures[1:]
			}
			result.Err = p.whichKey(i, r.b.failure(conn, Reply{Kind: Failure, Str: text}, false))
		}
	}
	if len(again) > 0 {
		r.again(ctx, conn, p, again, func(i int) *renewPart {
			one := p.other(i, states.Str[i])
			one.wait = r.b.options.Replicas > 0
			return one
		})
	}
}

// whichKey returns err, which is about the claim i of a part. If it says that a key is of another
// type, whichKey says which key. It does not ask which type, as other claims are to be renewed.
func (p *renewPart) whichKey(i int, err *driver.Error) error {
	if !IsServerError(err, "WRONGTYPE") {
		return err
	}
	text := "WRONGTYPE the key is of another type, and no lock"
	if keys, _, _ := p.argumentsOf(i); len(keys) > 1 {
		text = fmt.Sprintf("WRONGTYPE the key or %.200q is of another type", keys[1])
	}
	err.Err = ServerError(text)
	return err
}

// other returns the run of the script that decides about the claim i of a part, after its own run
// has returned this state: keep.lua for s, and turn.lua for a, which makes a lock that is held
// alone a shared one.
func (p *renewPart) other(i int, state byte) *renewPart {
	keys, owner, ttl := p.argumentsOf(i)
	if state == 'a' {
		return &renewPart{call: turnCall(keys[0], owner, ttl, p.slot, p.vote, "", "",
			shareMark(p.shared))}
	}
	one := &renewPart{call: p.call}
	one.script = keepScript()
	one.command = append(one.script.evalsha(make(Command, 0, 7), "2"), keys[0],
		KeysOf(keys[0]).Readers, owner, ttl)
	return one
}

// argumentsOf returns what a run of renew.lua or keep.lua was given for its claim i.
func (p *renewPart) argumentsOf(i int) (keys []string, owner, ttl string) {
	width := 1
	if p.script == keepScript() {
		width = 2
	}
	all := len(p.claims) * width
	arguments := p.command[3+all:]
	return p.command[3+i*width : 3+(i+1)*width], arguments[2*i], arguments[2*i+1]
}

// singly sends each claim of a part by itself. While a slot is being moved its keys are on two
// servers, and a server refuses a script with several of them, even for keys that nobody holds.
func (r *renewal) singly(ctx context.Context, conn Conn, p *renewPart) {
	p.clear()
	indexes := make([]int, len(p.claims))
	for i := range indexes {
		indexes[i] = i
	}
	r.again(ctx, conn, p, indexes, func(i int) *renewPart {
		keys, owner, ttl := p.argumentsOf(i)
		one := &renewPart{call: p.call, shared: p.shared}
		one.command = p.script.evalsha(make(Command, 0, 7), strconv.Itoa(len(keys)))
		one.command = append(append(one.command, keys...), owner, ttl)
		return one
	})
}

// again sends a request of its own for each of these claims of a part.
func (r *renewal) again(ctx context.Context, conn Conn, p *renewPart, indexes []int,
	request func(i int) *renewPart) {
	var all sync.WaitGroup
	for _, i := range indexes {
		one := request(i)
		one.claims, one.results = p.claims[i:i+1], p.results[i:i+1]
		all.Go(func() {
			reply, err := r.b.run(ctx, &one.call)
			if err != nil {
				one.fail(err)
				return
			}
			r.take(ctx, conn, one, reply)
		})
	}
	all.Wait()
}

// turned reads the reply of turn.lua. drew says whether it was to draw tokens.
func turned(reply Reply, drew bool) driver.Result {
	switch {
	case reply.Kind != Integer || reply.Int < 0 && !drew:
		return driver.Result{Err: strange("turn", reply)}
	case reply.Int == 0:
		return driver.Result{State: driver.Lost}
	case reply.Int < 0:
		return driver.Result{State: driver.Held, Token: driver.Token(-reply.Int), Waiting: true}
	case drew:
		return driver.Result{State: driver.Held, Token: driver.Token(reply.Int)}
	}
	return driver.Result{State: driver.Held}
}

func (r *renewal) fail(err error) {
	for _, p := range r.parts {
		p.fail(err)
	}
}

func (p *renewPart) fail(err error) {
	p.clear()
	for i := range p.results {
		p.results[i] = driver.Result{Err: err}
	}
}

// clear makes room for the results.
func (p *renewPart) clear() {
	if p.results == nil {
		p.results = make([]driver.Result, len(p.claims))
	}
}

func (r *renewal) copyTo(results []driver.Result) {
	for _, p := range r.parts {
		if &p.results[0] == &results[p.claims[0]] {
			continue // answerInto has set them already
		}
		for i, index := range p.claims {
			results[index] = p.results[i]
		}
	}
}
