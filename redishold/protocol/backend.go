package protocol

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Presence is for how long a waiter counts as present after it asked, or its TTL if that is shorter. It asks
// again about three times in that span, so a notice that is lost costs a second.
const Presence = 3 * time.Second

// Backend keeps locks in one Redis deployment. It implements [driver.Backend], [driver.Notifier],
// [driver.Inspector], [driver.Guarded], [driver.Identified] and [driver.Versioned], and is safe for concurrent use.
type Backend struct {
	transport Transport
	options   Options
	guard     atomic.Int64 // a time.Duration; 0 is off
	closed    atomic.Bool
	listeners listeners
	contended contention
	doubts    doubts
	durable   sync.Map // run_id: bool, for Transports that do not tell
	version   atomic.Pointer[string]
}

// Options are what a Backend can be told. The zero value is the default.
type Options struct {
	// Replicas is how many replicas have to confirm an acquisition or a renewal before it counts (WAIT). It
	// narrows the window in which a failover loses a lock, and does not close it. 0 waits for none.
	Replicas int

	// ReplicaTimeout bounds the wait for them, in which the connection carries nothing else. Default 100 ms.
	ReplicaTimeout time.Duration
}

// New returns a Backend that talks through transport, which is its own from now on.
func New(transport Transport, options Options) *Backend {
	if options.ReplicaTimeout <= 0 {
		options.ReplicaTimeout = 100 * time.Millisecond
	}
	b := &Backend{transport: transport, options: options}
	transport.Listen(b.listeners.hear)
	return b
}

// Close gives up all connections. Keys that are held run into their TTL. Calls after it, and those under way,
// fail with ErrUnavailable or, if they were sent, ErrUnknown. It returns nil; closing twice is safe.
func (b *Backend) Close() error {
	b.closed.Store(true)
	return b.transport.Close()
}

var errClosed = errors.New("backend closed")

// call is one run of a script.
type call struct {
	script  *Script
	slot    uint16
	command Command
	vote    time.Duration // the TTL asked for, if the server has to be out of quarantine; else 0
	effect  bool          // the script may have had an effect when it fails
	wait    bool          // for replicas
	route   int           // index in command of the route of notices, which depends on the server; 0 for none
}

// evalsha begins the command of a script with that many keys, which are to be appended, and then the arguments.
func (s *Script) evalsha(to Command, keys string) Command {
	return append(to, "EVALSHA", s.SHA, keys)
}

// scratch is the space for the commands and replies of one call. A Conn keeps nothing of it.
type scratch struct {
	args     [32]string
	commands [4]Command
	replies  [4]Reply
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// free gives the space back. Replies may have been handed on, and strings are not kept alive for nothing.
func (s *scratch) free() {
	*s = scratch{}
	scratches.Put(s)
}

// maxRedirects bounds how often a call follows a cluster's redirections: more than two in a row mean that
// the nodes do not agree with each other.
const maxRedirects = 4

var (
	infoCommand   = Command{"INFO", "server"}
	askingCommand = Command{"ASKING"}
)

// run sends the script to the server of its slot and returns its reply, which is not a Failure.
func (b *Backend) run(ctx context.Context, c *call) (Reply, error) {
	if err := b.ready(ctx); err != nil {
		return Reply{}, err
	}
	conn, err := b.transport.Conn(ctx, c.slot)
	if err != nil {
		return Reply{}, err
	}
	return b.runOn(ctx, conn, c)
}

func (b *Backend) runOn(ctx context.Context, conn Conn, c *call) (Reply, error) {
	space := scratches.Get().(*scratch)
	defer space.free()
	asking := false
	for redirects, loads := 0, 0; ; {
		if err := b.admit(conn.Server(), c.vote); err != nil {
			return Reply{}, err
		}
		commands := space.commands[:0]
		vouch := b.hasToVouch(conn, c.vote)
		if vouch {
			commands = append(commands, infoCommand)
		}
		if asking {
			commands = append(commands, askingCommand)
		}
		commands = append(commands, c.command)
		if c.wait {
			commands = append(commands, b.waitCommand())
		}
		replies := space.replies[:len(commands)]
		if err := conn.Do(ctx, commands, replies); err != nil {
			return Reply{}, err
		}
		if vouch {
			if err := b.vouch(ctx, conn, replies[0]); err != nil {
				return Reply{}, err
			}
			replies = replies[1:]
		}
		if asking {
			replies = replies[1:]
		}
		reply := replies[0]
		if reply.Kind != Failure {
			if c.wait {
				if err := b.waited(conn, replies[1]); err != nil {
					return Reply{}, err
				}
			}
			return reply, nil
		}
		failure := b.failure(conn, reply, c.effect)
		redirect := parseRedirect(reply.Str)
		switch {
		case loads == 0 && IsServerError(failure, "NOSCRIPT"):
			// The cache was flushed, or the server is another than the one that loaded the scripts. Nothing was
			// done, so sending the source once is no retry; and it keeps the order, as the caller still waits.
			loads++
			c.command[0], c.command[1] = "EVAL", c.script.Source
		case redirect.address != "" && redirects < maxRedirects:
			redirects++
			asking = redirect.ask
			slot := c.slot
			if asking {
				slot = Slots
			}
			var err error
			if conn, err = b.transport.Follow(ctx, slot, redirect.address); err != nil {
				return Reply{}, err
			}
			if c.route > 0 && !asking {
				c.command[c.route] = conn.Route(ctx, slot)
			}
		default:
			return Reply{}, failure
		}
	}
}

// failure judges an error reply.
func (b *Backend) failure(conn Conn, reply Reply, effect bool) *driver.Error {
	server := conn.Server()
	if server == nil {
		return ServerFailure("", reply.Str, effect)
	}
	err := ServerFailure(server.Name, reply.Str, effect)
	if server.Failover && IsServerError(err, "READONLY") {
		err.Permanent = false // another server has taken over, or will
	}
	return err
}

// ready reports why a call can not be made at all.
func (b *Backend) ready(ctx context.Context) error {
	if b.closed.Load() {
		return &driver.Error{Permanent: true, Err: errClosed}
	}
	if err := ctx.Err(); err != nil {
		return &driver.Error{Err: err}
	}
	return nil
}

func nameOf(conn Conn) string {
	if server := conn.Server(); server != nil {
		return server.Name
	}
	return ""
}

// redirect is a cluster's answer for a slot that is not, or no longer, where it was asked for.
type redirect struct {
	ask     bool // for this command only
	address string
}

func parseRedirect(text string) redirect {
	fields := strings.Fields(text) // MOVED 3999 127.0.0.1:6381
	if len(fields) != 3 || fields[0] != "MOVED" && fields[0] != "ASK" {
		return redirect{}
	}
	return redirect{ask: fields[0] == "ASK", address: fields[2]}
}

func (b *Backend) waitCommand() Command {
	return Command{"WAIT", strconv.Itoa(b.options.Replicas), strconv.FormatInt(b.options.ReplicaTimeout.Milliseconds(), 10)}
}

// waited judges the reply to WAIT.
func (b *Backend) waited(conn Conn, reply Reply) error {
	if reply.Kind == Failure {
		return ServerFailure(nameOf(conn), reply.Str, true)
	}
	if reply.Int < int64(b.options.Replicas) {
		return &driver.Error{Node: nameOf(conn), Maybe: true, Err: fmt.Errorf("%d replicas confirmed within %v, %d wanted",
			reply.Int, b.options.ReplicaTimeout, b.options.Replicas)}
	}
	return nil
}

// validate checks what the kernel promises, as a script would do something else with it.
func validate(claim *driver.Claim) error {
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refuse("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case reserved(claim.Key):
		return refuse("key %.40q: what begins so is kept beside locks", claim.Key)
	case claim.Owner == "":
		return refuse("empty owner value")
	case claim.TTL < time.Millisecond:
		return refuse("TTL %v: must be at least %v", claim.TTL, time.Millisecond)
	case claim.Token >= maxExact || claim.Block >= maxExact || uint64(claim.Token)+claim.Block >= maxExact:
		return refuse("token %d with block %d: must be less than 2^53", claim.Token, claim.Block)
	case claim.Ticket >= maxExact:
		return refuse("ticket %d: must be less than 2^53", claim.Ticket)
	}
	return nil
}

// maxExact bounds the integers that Lua and sorted sets, whose numbers are floating point, keep exact.
const maxExact = 1 << 53

func refuse(format string, args ...any) *driver.Error {
	return &driver.Error{Permanent: true, Err: fmt.Errorf(format, args...)}
}

// strange is the error of a reply that no script of ours gives.
func strange(what string, reply Reply) error {
	return &driver.Error{Maybe: true, Err: fmt.Errorf("unexpected reply to %s: kind %d, %.40q", what, reply.Kind, reply.Str)}
}

// lastMilliseconds saves formatting the same TTL over and over.
var lastMilliseconds atomic.Pointer[formatted]

type formatted struct {
	d    time.Duration
	text string
}

// milliseconds formats a duration for the server, rounded up: a lease there must not end before the one that
// the client reckons with.
func milliseconds(d time.Duration) string {
	if last := lastMilliseconds.Load(); last != nil && last.d == d {
		return last.text
	}
	text := strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
	lastMilliseconds.Store(&formatted{d, text})
	return text
}
