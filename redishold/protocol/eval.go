package protocol

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"
)

// ending has the scripts that end a claim, by their sources and by what EVALSHA knows them by.
var ending sync.Map

// NewScript returns a script for [Backend.Eval] and [Backend.EvalNumbered]. The name is for people.
// ends says that the script ends the claim of the owner value that is its first argument. Such a
// script is sent even if its caller has given up before the script's turn came, and two calls of it
// with the same keys and owner value must have the effect of one.
func NewScript(name, source string, ends bool) *Script {
	sum := sha1.Sum([]byte(source))
	s := &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
	if ends {
		ending.Store(s.SHA, true)
		ending.Store(s.Source, true)
	}
	return s
}

// Eval runs a script of the caller's on the server that serves the key, in the order of all
// requests for the key's slot. It is for backends that keep locks in another layout. All keys have
// to be in that slot. If the server does not know the script, Eval sends it.
//
// ctx bounds the call, not its effect. Eval fails as Acquire does, with ErrUnknown if the script
// may have run. It never asks for a vote, so a restart guard does not refuse it.
func (b *Backend) Eval(ctx context.Context, script *Script, key string,
	keys, args []string) (Reply, error) {
	if err := b.ready(ctx); err != nil {
		return Reply{}, err
	}
	return b.eval(ctx, script, Slot(key), keys, args)
}

// EvalNumbered is Eval for a script that acquires or ends the claim of an owner value. The server
// can tell the Backend's requests about a claim that arrive late, as on a client that others use
// too. The script gets
//
//   - one more key, the last: the client's late requests about the owner value (see the
//     documentation of the package). It has the text "client number" or does not exist;
//   - the owner value as its first argument, before args;
//   - after args, which client sends the request, and its number there;
//   - after these, if earlier requests of the client may still arrive, the number of the last of
//     them, and for how many milliseconds the server has to remember it.
//
// If the last key has the request's client, and the same number or a larger one, the script must do
// nothing. Otherwise it first has to set that key to what it is told, if it is told something. If
// the server refuses that, for want of memory, a script that acquires must fail. One that ends a
// claim goes on and adds 4 to its reply, which EvalNumbered subtracts. Without these 4 its reply
// must be 0 to 3, or no integer.
func (b *Backend) EvalNumbered(ctx context.Context, script *Script, key, owner string,
	keys, args []string) (Reply, error) {
	if err := b.ready(ctx); err != nil {
		return Reply{}, err
	}
	of := Keys{Slot: Slot(key)}
	r := b.doubts.next(owner)
	all := append(make([]string, 0, len(keys)+1), keys...)
	told := append(make([]string, 0, 1+len(args)+4), owner)
	told = b.doubts.numbered(append(told, args...), r)
	reply, err := b.eval(ctx, script, of.Slot, append(all, of.late(b.doubts.client, owner)), told)
	if _, ends := ending.Load(script.SHA); ends {
		b.doubts.released(r, &reply, err)
	} else {
		b.doubts.acquired(r, err)
	}
	return reply, err
}

func (b *Backend) eval(ctx context.Context, script *Script, slot uint16,
	keys, args []string) (Reply, error) {
	conn, err := b.transport.Conn(ctx, slot)
	if err != nil {
		return Reply{}, err
	}
	command := script.evalsha(make(Command, 0, 3+len(keys)+len(args)), strconv.Itoa(len(keys)))
	command = append(append(command, keys...), args...)
	return b.runOn(ctx, conn, &call{script: script, slot: slot, command: command, effect: true,
		patient: true})
}
