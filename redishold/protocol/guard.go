package protocol

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Guard has the Backend refuse claims for the guard after a server started, as [driver.Guarded] describes. It
// looks at run_id and uptime_in_seconds on each new connection, before that carries a claim. A server with
// appendonly yes and appendfsync always can not forget and is exempt.
func (b *Backend) Guard(guard time.Duration) { b.guard.Store(int64(guard)) }

// admit reports why the server may not vote on a claim with this TTL; 0 is no vote.
func (b *Backend) admit(server *Server, ttl time.Duration) error {
	guard := time.Duration(b.guard.Load())
	if guard <= 0 || ttl == 0 {
		return nil
	}
	if ttl > guard {
		return refuse("TTL %v: at most the restart guard of %v is allowed", ttl, guard)
	}
	if server == nil || server.Durable {
		return nil
	}
	if remaining := guard - time.Since(server.Booted); remaining > 0 {
		return &driver.Error{Node: server.Name, Err: &driver.QuarantineError{Remaining: remaining}}
	}
	return nil
}

// hasToVouch reports whether the server has to be asked, on the same connection and just before the request,
// whether it may vote: the connection does not know.
func (b *Backend) hasToVouch(conn Conn, ttl time.Duration) bool {
	return ttl > 0 && b.guard.Load() > 0 && conn.Server() == nil
}

// vouch reads the answer. The request behind it has been carried out by then, so an acquisition has to be
// undone.
func (b *Backend) vouch(ctx context.Context, conn Conn, info Reply) error {
	if info.Kind == Failure {
		return b.failure(conn, info, false)
	}
	server, err := ParseInfo("", info.Str, time.Now())
	if err != nil {
		return &driver.Error{Permanent: true, Err: err}
	}
	err = b.admit(server, 1)
	if err == nil {
		return nil
	}
	if durable, ok := b.durable.Load(server.RunID); ok {
		server.Durable = durable.(bool)
	} else {
		replies := make([]Reply, 1)
		if err := conn.Do(ctx, []Command{{"CONFIG", "GET", "append*"}}, replies); err != nil {
			return err
		}
		server.Durable = durableBy(replies[0])
		b.durable.Store(server.RunID, server.Durable)
	}
	return b.admit(server, 1)
}

// durableBy reads the reply to CONFIG GET append*.
func durableBy(settings Reply) bool {
	found := make(map[string]string)
	for i := 0; i+1 < len(settings.List); i += 2 {
		found[settings.List[i].Str] = settings.List[i+1].Str
	}
	return found["appendonly"] == "yes" && found["appendfsync"] == "always"
}

// Identity returns the run_id of the server, or of all primaries of a cluster. It fails with ErrUnavailable
// if one of them can not be reached.
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

// runID asks the server, whatever is known about it already: that it answers is part of what the caller wants
// to know.
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
	b.version.Store(&server.Version)
	return server.RunID, nil
}

// Version returns the version of a server, as driver.Versioned describes.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}
