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

// NewScript returns a script for [Backend.Eval]. The name is for people. ends says that the script
// ends a claim. Such a script is sent even if its caller has given up before the script's turn
// came, and two equal calls of it must have the effect of one.
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
	slot := Slot(key)
	conn, err := b.transport.Conn(ctx, slot)
	if err != nil {
		return Reply{}, err
	}
	command := script.evalsha(make(Command, 0, 3+len(keys)+len(args)), strconv.Itoa(len(keys)))
	command = append(append(command, keys...), args...)
	return b.runOn(ctx, conn, &call{script: script, slot: slot, command: command, effect: true,
		patient: true})
}
