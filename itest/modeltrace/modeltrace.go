// Package modeltrace records what a client and each node said to each other, in the terms of the
// model in models/fencing.pml: who was granted which tokens at which node, which node raised its
// token to them, and with which token an acquisition was completed.
package modeltrace

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Whole is the target of calls to all nodes together, instead of a node's name.
const Whole = "all"

// recorder writes down calls on one target.
type recorder struct {
	log    *history.Log
	target string
	prefix string // of keys, which histories leave out
}

// call begins the record of a call, and returns what ends it.
func (r recorder) call(name string, claim driver.Claim) (answered func(driver.Result, error)) {
	rec := history.Record{
		Kind: history.Sent, At: history.Now(), Name: name, Target: r.target,
		Key: strings.TrimPrefix(claim.Key, r.prefix), Owner: claim.Owner,
		Asked: uint64(claim.Token), Block: claim.Block, TTL: int64(claim.TTL),
		Shared: claim.Shared,
	}
	if rec.Ends() {
		// this process may be killed before the answer comes, and the server still does it
		r.log.Add(rec)
	}
	return func(result driver.Result, err error) {
		rec.Kind = history.Call
		rec.Until = history.Now()
		rec.Outcome = history.Failed
		if err == nil && result.Err == nil {
			rec.Outcome, rec.Token = result.State.String(), uint64(result.Token)
		}
		r.log.Add(rec)
	}
}

// notice records a grant that was heard of.
func (r recorder) notice(n driver.Notice) {
	if n.Kind == driver.Granted {
		now := history.Now()
		r.log.Add(history.Record{
			Kind: history.Call, At: now, Until: now, Name: history.Notice, Target: r.target,
			Key: strings.TrimPrefix(n.Key, r.prefix), Owner: n.Owner,
			Block: n.Block, Token: uint64(n.Token), Outcome: driver.Held.String(),
		})
	}
}

func (r recorder) acquire(ctx context.Context, b driver.Backend,
	claim driver.Claim) (driver.Result, error) {
	answered := r.call(history.Acquire, claim)
	result, err := b.Acquire(ctx, claim)
	answered(result, err)
	return result, err
}

func (r recorder) renew(ctx context.Context, b driver.Backend,
	claims []driver.Claim) ([]driver.Result, error) {
	answered := make([]func(driver.Result, error), len(claims))
	for i := range claims {
		answered[i] = r.call(history.Renew, claims[i])
	}
	results, err := b.Renew(ctx, claims)
	for i := range claims {
		var result driver.Result
		if i < len(results) {
			result = results[i]
		}
		answered[i](result, err)
	}
	return results, err
}

func (r recorder) release(ctx context.Context, b driver.Backend,
	claim driver.Claim) (driver.Result, error) {
	answered := r.call(history.LetGo, claim)
	result, err := b.Release(ctx, claim)
	answered(result, err)
	return result, err
}

// Node is a backend of one server whose calls are recorded. It can do whatever the backend can.
type Node struct {
	*protocol.Backend
	recorder recorder
	close    func() error
}

// NewNode returns a Node over a backend. server is its name for the server. Close also calls also,
// unless that is nil.
func NewNode(b *protocol.Backend, log *history.Log, server, prefix string,
	also func() error) *Node {
	return &Node{b, recorder{log, server, prefix}, also}
}

// Acquire implements driver.Backend.
func (n *Node) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return n.recorder.acquire(ctx, n.Backend, claim)
}

// Renew implements driver.Backend.
func (n *Node) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	return n.recorder.renew(ctx, n.Backend, claims)
}

// Release implements driver.Backend.
func (n *Node) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return n.recorder.release(ctx, n.Backend, claim)
}

// Notify implements driver.Notifier.
func (n *Node) Notify(f func(driver.Notice)) (stop func()) {
	return n.Backend.Notify(func(notice driver.Notice) {
		n.recorder.notice(notice)
		f(notice)
	})
}

// Close implements driver.Backend.
func (n *Node) Close() error {
	err := n.Backend.Close()
	if n.close != nil {
		if also := n.close(); err == nil {
			err = also
		}
	}
	return err
}

// Quorum is several servers as one.
type Quorum interface {
	driver.Backend
	driver.Notifier
}

// All is a Quorum whose calls are recorded: their results are those with which acquisitions were
// completed.
type All struct {
	Quorum
	recorder recorder
}

// NewAll returns an All over a quorum.
func NewAll(q Quorum, log *history.Log, prefix string) *All {
	return &All{q, recorder{log, Whole, prefix}}
}

// NewServers returns an All over a backend of servers that are one to their clients.
func NewServers(b Quorum, log *history.Log, name, prefix string) *All {
	return &All{b, recorder{log, name, prefix}}
}

// Shares implements driver.Sharer.
func (a *All) Shares() bool {
	s, ok := a.Quorum.(driver.Sharer)
	return ok && s.Shares()
}

// Acquire implements driver.Backend.
func (a *All) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return a.recorder.acquire(ctx, a.Quorum, claim)
}

// Renew implements driver.Backend.
func (a *All) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	return a.recorder.renew(ctx, a.Quorum, claims)
}

// Release implements driver.Backend.
func (a *All) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return a.recorder.release(ctx, a.Quorum, claim)
}

// Notify implements driver.Notifier.
func (a *All) Notify(f func(driver.Notice)) (stop func()) {
	return a.Quorum.Notify(func(notice driver.Notice) {
		a.recorder.notice(notice)
		f(notice)
	})
}
