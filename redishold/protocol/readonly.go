package protocol

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// ErrReadOnly is in the error of every call that a Backend with Options.ReadOnly refuses.
var ErrReadOnly = errors.New("the backend was opened for reading only")

// harmless are the commands that change nothing. A Backend with Options.ReadOnly sends no others.
// The first two groups are in the category @read of an ACL.
var harmless = map[string]bool{
	"SCAN": true, "EXISTS": true, "TYPE": true, "GETRANGE": true, "PTTL": true, "PEXPIRETIME": true,
	"ZRANGEBYSCORE": true, "HGETALL": true, "HLEN": true, "MEMORY": true,

	"TIME": true, "INFO": true, "CONFIG": true,
}

// harmlessParts are the only subcommands of these that are sent; CONFIG GET is for Check.
var harmlessParts = map[string]string{"CONFIG": "GET", "MEMORY": "USAGE"}

// readOnly is a transport that sends only commands that are known to change nothing. It refuses all
// others here, in one place, whoever asks.
type readOnly struct{ Transport }

func (t readOnly) Conn(ctx context.Context, slot uint16) (Conn, error) {
	return reading(t.Transport.Conn(ctx, slot))
}

func (t readOnly) Follow(ctx context.Context, slot uint16, address string) (Conn, error) {
	return reading(t.Transport.Follow(ctx, slot, address))
}

func (t readOnly) All(ctx context.Context) ([]Conn, error) {
	conns, err := t.Transport.All(ctx)
	if err != nil {
		return nil, err
	}
	safe := make([]Conn, len(conns))
	for i, conn := range conns {
		safe[i] = readOnlyConn{conn}
	}
	return safe, nil
}

func reading(conn Conn, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	return readOnlyConn{conn}, nil
}

type readOnlyConn struct{ Conn }

func (c readOnlyConn) Do(ctx context.Context, commands []Command, replies []Reply) error {
	for _, command := range commands {
		only, whole := harmlessParts[command[0]]
		if !harmless[command[0]] || whole && command[1] != only {
			return &driver.Error{Node: nameOf(c.Conn), Permanent: true,
				Err: fmt.Errorf("%w: %s is not sent", ErrReadOnly, command[0])}
		}
	}
	return withoutEffect(c.Conn.Do(ctx, commands, replies))
}

// Route subscribes to nothing.
func (c readOnlyConn) Route(context.Context, uint16) string { return "" }
