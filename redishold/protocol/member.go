package protocol

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// setKey is where a server remembers which set of nodes it belongs to, in the form of
// [driver.Set.Text]. It never expires.
const setKey = Namespace + "s"

// memoryKey is where a server stores since when it has had its data. It is lost with the data. It
// is in the slot of setKey.
const memoryKey = Namespace + "m:{" + setKey + "}"

// membership is what claims depend on beside the server's uptime: the set that they come under, the
// time since when the server has had its data, and the server's last answer about both.
type membership struct {
	want      atomic.Pointer[driver.Set] // nil if it does not matter
	confirmed atomic.Pointer[confirmation]
	asking    atomic.Bool // in the background
}

// confirmation is a server's answer that it belongs to the set.
type confirmation struct {
	want *driver.Set
	conn Conn
	// as the connection knew it; a change means another run, or that the server has lost its data
	server *Server
	asked  time.Duration // on the lease clock
	// since when the server has had its data, in its own form; empty if it was not asked
	memory  string
	suspect time.Time // that time or later, on this process's clock
}

// age returns how old the confirmation is, and false if it is about another set, connection or run
// of the server.
func (c *confirmation) age(want *driver.Set, server *Server) (time.Duration, bool) {
	if c == nil || c.want != want || server == nil || c.server != server {
		return 0, false
	}
	return driver.LeaseClock() - c.asked, true
}

// sameRun reports whether both are about the memory of one run of a server.
func (c *confirmation) sameRun(other *confirmation) bool {
	return c != nil && c.memory != "" && c.server != nil && other.server != nil &&
		c.server.RunID == other.server.RunID
}

// Join puts all claims under the set, as [driver.Member] describes. If the connection knows its
// server, the Backend asks the server for its set every few seconds, in the background while the
// connection is in use. Otherwise it asks before each request, which costs one more round trip.
func (b *Backend) Join(set driver.Set) {
	if set == (driver.Set{}) {
		b.membership.want.Store(nil)
		return
	}
	b.membership.want.Store(&set)
}

// Belongs returns the set that the server remembers, as [driver.Member] describes. A cluster has
// one for all its servers. ctx bounds the call. It fails with ErrUnavailable or ErrUnknown.
func (b *Backend) Belongs(ctx context.Context) (driver.Set, error) {
	if b.options.ReadOnly {
		return b.belongsPlainly(ctx)
	}
	return b.Move(ctx, driver.Set{}, driver.Set{})
}

// belongsPlainly is Belongs without a script, which a user who may only read cannot run.
func (b *Backend) belongsPlainly(ctx context.Context) (driver.Set, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Set{}, err
	}
	conn, err := b.transport.Conn(ctx, Slot(setKey))
	if err != nil {
		return driver.Set{}, err
	}
	keys := []string{setKey, memoryKey}
	if !b.memoryMatters(conn.Server()) {
		keys = keys[:1]
	}
	commands, replies := make([]Command, len(keys)), make([]Reply, len(keys))
	for i, key := range keys {
		commands[i] = Command{"GETRANGE", key, "0", "-1"}
	}
	if err := conn.Do(ctx, commands, replies); err != nil {
		return driver.Set{}, err
	}
	for i, key := range keys {
		switch replies[i].Kind {
		case String:
		case Failure:
			return driver.Set{}, overwritten(b.failure(conn, replies[i], false), key)
		default:
			return driver.Set{}, strange("belong", replies[i])
		}
	}
	return readSet(conn, replies[0].Str)
}

// readSet reads the set that a server remembers.
func readSet(conn Conn, text string) (driver.Set, error) {
	set, err := driver.ParseSet(text)
	if err != nil {
		return driver.Set{}, &driver.Error{Node: nameOf(conn), Permanent: true,
			Err: fmt.Errorf("the key %q holds %w", setKey, err)}
	}
	return set, nil
}

// overwritten returns the error of a question for these keys. If one is of another type, the error
// names them: the server's own words do not, and users know nothing of these keys.
func overwritten(err error, keys ...string) error {
	e := (*driver.Error)(nil)
	if !IsServerError(err, "WRONGTYPE") || !errors.As(err, &e) {
		return err
	}
	var names []string
	for _, key := range keys {
		names = append(names, strconv.Quote(key))
	}
	named := *e
	words := ServerError("WRONGTYPE the key " + strings.Join(names, " or ") +
		" is no string of Holdfast")
	named.Err = fmt.Errorf("%w: %w", words, driver.ErrNoSet)
	return &named
}

// Move has the server remember another set, as [driver.Member] describes. It fails as Belongs does.
func (b *Backend) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Set{}, err
	}
	conn, err := b.transport.Conn(ctx, Slot(setKey))
	if err != nil {
		return driver.Set{}, err
	}
	return b.move(ctx, conn, from, to)
}

func (b *Backend) move(ctx context.Context, conn Conn, from, to driver.Set) (driver.Set, error) {
	a, err := b.belong(ctx, conn, from, to, false)
	return a.set, err
}

// belonging is what the script answers.
type belonging struct {
	set    driver.Set
	age    time.Duration // how long the server has had its data; only if memory was asked for
	memory string        // as the server keeps it
}

// belong runs the script.
func (b *Backend) belong(ctx context.Context, conn Conn, from, to driver.Set,
	memory bool) (a belonging, err error) {
	command := belongScript().evalsha(make(Command, 0, 8), "2")
	command = append(command, setKey, memoryKey, from.Text(), to.Text(), "")
	if memory {
		command[len(command)-1] = "1"
	}
	reply, err := b.runOn(ctx, conn, &call{script: belongScript(), slot: Slot(setKey),
		command: command, effect: from != to})
	if err != nil {
		keys := []string{setKey, memoryKey}
		if !memory {
			keys = keys[:1]
		}
		return belonging{}, overwritten(err, keys...)
	}
	list := reply.List
	if reply.Kind != List || len(list) != 3 || list[0].Kind != String || list[1].Kind != Integer ||
		list[2].Kind != String {
		return belonging{}, strange("belong", reply)
	}
	a = belonging{age: time.Duration(max(0, list[1].Int)) * time.Millisecond, memory: list[2].Str}
	a.set, err = readSet(conn, list[0].Str)
	return a, err
}

// member returns an error unless the server has had its data for the guard and belongs to the set.
// A server without a set joins it. A nil set is any set. memory is what the server stores about its
// data, if that matters.
func (b *Backend) member(ctx context.Context, conn Conn,
	want *driver.Set) (memory string, err error) {
	if want == nil && !b.memoryMatters(conn.Server()) {
		return "", nil
	}
	if conn, err = b.keeper(ctx, conn); err != nil {
		return "", err
	}
	last := b.membership.confirmed.Load()
	age, same := last.age(want, conn.Server())
	switch {
	case !same || last.conn != conn || age >= driver.SetFresh || last.memory == "" &&
		b.memoryMatters(conn.Server()):
		return b.confirm(ctx, conn, want)
	case age >= driver.SetFresh/2 && b.membership.asking.CompareAndSwap(false, true):
		go func() {
			defer b.membership.asking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), driver.SetFresh/2)
			defer cancel()
			// An error shows when it is asked again, in the foreground.
			_, _ = b.confirm(ctx, conn, want)
		}()
	}
	return last.memory, b.remembers(last)
}

// keeper returns the connection to the server that stores set and memory.
func (b *Backend) keeper(ctx context.Context, conn Conn) (Conn, error) {
	if !b.transport.Cluster() && conn.Server() != nil {
		return conn, nil
	}
	conn, err := b.transport.Conn(ctx, Slot(setKey))
	if c, ok := conn.(*sharedConn); ok && err == nil {
		// All claims ask for these keys. One answer that hangs must not delay the others.
		return &sharedConn{t: c.t, node: c.node, slot: Slots}, nil
	}
	return conn, err
}

// memoryMatters reports whether the server takes part only after it has had its data for the guard.
func (b *Backend) memoryMatters(server *Server) bool {
	return b.guard.Load() > 0 && (server == nil || !server.Durable)
}

// confirm asks the server for its set and memory.
func (b *Backend) confirm(ctx context.Context, conn Conn,
	want *driver.Set) (memory string, err error) {
	server := conn.Server()
	c := &confirmation{want: want, conn: conn, server: server, asked: driver.LeaseClock()}
	var to driver.Set
	if want != nil {
		to = *want
	}
	answer, err := b.belong(ctx, conn, driver.Set{}, to, b.memoryMatters(server))
	switch {
	case err != nil:
		return "", withoutEffect(err)
	case want != nil && !answer.set.Admits(*want):
		b.membership.confirmed.Store(nil)
		return "", &driver.Error{Node: nameOf(conn), Permanent: true,
			Err: &driver.SetError{Want: *want, Have: answer.set}}
	}
	if c.memory = answer.memory; c.memory != "" {
		c.suspect = time.Now().Add(-answer.age)
		if last := b.membership.confirmed.Load(); last.sameRun(c) && last.suspect.After(c.suspect) {
			// the later finding counts: the server's clock may have been set forward since
			c.suspect = last.suspect
		}
	}
	if server != nil && server == conn.Server() {
		b.membership.confirmed.Store(c)
	}
	return c.memory, b.remembers(c)
}

// remembers returns an error if the server may have lost its data within the guard.
func (b *Backend) remembers(c *confirmation) error {
	if c.memory == "" {
		return nil
	}
	remaining := time.Duration(b.guard.Load()) - time.Since(c.suspect)
	if remaining <= 0 {
		return nil
	}
	return &driver.Error{Node: nameOf(c.conn), Err: &driver.QuarantineError{Remaining: remaining,
		Reason: "it is new, was restarted, or has lost its data"}}
}

// withoutEffect returns the error of a question, or of a claim that was not sent because the
// question before it failed.
func withoutEffect(err error) error {
	if e, ok := err.(*driver.Error); ok && e.Maybe {
		sure := *e
		sure.Maybe = false
		return &sure
	}
	return err
}

// vouched reports whether a notice of the server may count as a grant, by what is known of set and
// memory.
func (b *Backend) vouched(server *Server) bool {
	want, memory := b.membership.want.Load(), b.memoryMatters(server)
	if want == nil && !memory {
		return true
	}
	if memory && server.blind() {
		return false
	}
	last := b.membership.confirmed.Load()
	age, same := last.age(want, server)
	return same && age < driver.SetFresh &&
		(!memory || last.memory != "" && b.remembers(last) == nil)
}
