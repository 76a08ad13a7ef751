package protocol

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Guard has the Backend refuse claims for the guard after a server started, as [driver.Guarder]
// describes. The Backend looks at run_id and uptime_in_seconds on each new connection, before the
// connection carries a claim. It also has the server store the time since when it has had its data,
// which shows a loss that happened while nobody was connected. Only a server that its operator
// calls durable is exempt, because settings tell nothing about the run before.
func (b *Backend) Guard(guard time.Duration) { b.guard.Store(int64(guard)) }

// admit returns an error if the server may not vote on a claim with this TTL. 0 asks for no vote.
func (b *Backend) admit(server *Server, ttl time.Duration) error {
	guard := time.Duration(b.guard.Load())
	if guard <= 0 || ttl == 0 {
		return nil
	}
	if ttl > guard {
		return refuse("TTL %v: at most the restart guard of %v is allowed", ttl, guard)
	}
	if server == nil {
		return nil
	}
	if remaining := guard - time.Since(server.suspect()); remaining > 0 {
		return &driver.Error{Node: server.Name, Err: &driver.QuarantineError{Remaining: remaining}}
	}
	return nil
}

// mayVote returns an error if the server may not vote on a claim with this TTL, before the claim is
// sent. It asks the server for its memory even while the uptime refuses the claim, so that both
// quarantines run at the same time. In that case the server joins no set. memory is the server's
// answer.
func (b *Backend) mayVote(ctx context.Context, conn Conn, server *Server,
	ttl time.Duration) (memory string, err error) {
	if guard := time.Duration(b.guard.Load()); guard > 0 && ttl > guard {
		return "", b.admit(nil, ttl)
	}
	if err := b.admit(server, ttl); err != nil {
		// If this fails, the error shows when the uptime no longer refuses.
		_, _ = b.member(ctx, conn, nil)
		return "", err
	}
	return b.member(ctx, conn, b.membership.want.Load())
}

// memoryCommand is sent behind a request on which the server votes, where that is possible. If the
// memory is unchanged then, the data are those that the server was found to have had for the guard.
var memoryCommand = Command{"GET", memoryKey}

// testifies reports whether memoryCommand has to be sent. In a cluster the memory is elsewhere.
func (b *Backend) testifies(memory string) bool { return memory != "" && !b.transport.Cluster() }

// admitted is admit for a request that has been answered. server is what was known when it was
// sent. If more is known now, or the memory has changed, the server may have lost its data before
// it applied the request. last is the answer to memoryCommand, if that was sent.
func (b *Backend) admitted(ctx context.Context, conn Conn, server *Server, ttl time.Duration,
	memory string, last *Reply) error {
	if now := conn.Server(); now != server {
		return maybe(b.admit(now, ttl))
	}
	switch {
	case memory == "":
		return nil
	case !b.testifies(memory) && !server.blind():
		return nil // it is told
	case b.testifies(memory) && last.Kind == Failure:
		return maybe(b.failure(conn, *last, true))
	case b.testifies(memory) && last.Kind == String && last.Str == memory:
		return nil
	}
	conn, err := b.keeper(ctx, conn)
	if err != nil {
		return maybe(err)
	}
	now, err := b.confirm(ctx, conn, b.membership.want.Load())
	if err == nil && now != memory {
		err = &driver.Error{Node: nameOf(conn), Err: errReplaced}
	}
	return maybe(err)
}

var errReplaced = errors.New("its data were replaced meanwhile")

// hasToVouch reports whether the server has to be asked whether it may vote, on the same connection
// and just before the request, because the connection does not know.
func (b *Backend) hasToVouch(conn Conn, ttl time.Duration) bool {
	return ttl > 0 && b.guard.Load() > 0 && conn.Server() == nil
}

// vouch reads the answers to that question. By then the request behind them has been carried out.
// So if the answers cannot be read, its outcome is unknown, and in quarantine an acquisition has to
// be undone.
func (b *Backend) vouch(conn Conn, answers []Reply) error {
	info := ""
	for _, answer := range answers {
		if answer.Kind == Failure {
			return maybe(b.failure(conn, answer, false))
		}
		info += answer.Str
	}
	now := time.Now()
	server, err := ParseInfo("", info, now)
	if err != nil {
		return &driver.Error{Maybe: true, Permanent: true, Err: err}
	}
	b.looks.Lock()
	defer b.looks.Unlock()
	server.Follow(b.looks.servers[server.RunID], now)
	if b.looks.servers == nil {
		b.looks.servers = make(map[string]*Server)
	}
	b.looks.servers[server.RunID] = server
	return b.admit(server, 1)
}

// looks are what was found out about servers, by run_id, over a Transport that knows no servers.
type looks struct {
	sync.Mutex
	servers map[string]*Server
}

// Identity returns the run_id of the server, or of all primaries of a cluster. ctx bounds the call.
// It fails with ErrUnavailable if one of them cannot be reached.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	if err := b.ready(ctx); err != nil {
		return "", err
	}
	conns, err := b.transport.All(ctx)
	if err != nil {
		return "", err
	}
	ids := make([]string, 0, len(conns))
	for _, conn := range conns {
		id, err := b.runID(ctx, conn)
		if err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return strings.Join(ids, ","), nil
}

// runID asks the server even if its run_id is known, because the caller also wants to know that the
// server answers.
func (b *Backend) runID(ctx context.Context, conn Conn) (string, error) {
	replies := make([]Reply, 1)
	if err := conn.Do(ctx, []Command{{"INFO", "server"}}, replies); err != nil {
		return "", err
	}
	if replies[0].Kind == Failure {
		return "", b.failure(conn, replies[0], false)
	}
	server, err := ParseInfo(nameOf(conn), replies[0].Str, time.Now())
	if err != nil {
		return "", &driver.Error{Node: nameOf(conn), Permanent: true, Err: err}
	}
	b.version.Store(&server.Release)
	return server.RunID, nil
}

// Version returns the version of a server, as driver.Versioner describes.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}
