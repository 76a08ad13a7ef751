package protocol

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Presence is how long a waiter counts as present after it last asked. If its TTL is shorter, it
// counts for that time. A waiter asks about three times in that span, so a lost notice costs a
// second.
const Presence = 3 * time.Second

// maxReplicas is the largest number of replicas to wait for.
const maxReplicas = 255

// Backend keeps locks in one Redis deployment. It implements [driver.Backend], [driver.Notifier],
// [driver.BatchInspector], [driver.Checker], [driver.Sharer], [driver.Guarder], [driver.Member],
// [driver.Identifier] and [driver.Versioner], and is safe for concurrent use.
type Backend struct {
	transport  Transport
	options    Options
	guard      atomic.Int64 // a time.Duration; 0 is off
	closed     atomic.Bool
	listeners  listeners
	contended  contention
	doubts     doubts
	looks      looks
	membership membership
	version    atomic.Pointer[string]
}

// Options are the options of a Backend. The zero value is the default.
type Options struct {
	// Replicas is how many replicas, 0 to 255, have to confirm an acquisition or a renewal before
	// it counts (WAIT). It narrows the window in which a failover loses a lock, but does not close
	// it. 0 waits for none.
	Replicas int

	// ReplicaTimeout bounds the wait for replicas: 1 ms to 1 s, or 0 for 100 ms. During the wait
	// the connection carries nothing else.
	ReplicaTimeout time.Duration

	// ReadOnly has the Backend send only commands that change nothing. Inspect, List, Check,
	// Belongs, Identity and Version work; everything else fails with ErrReadOnly, as
	// ErrUnavailable.
	ReadOnly bool

	// Durable is the operator's word that a lone server forgets nothing. The Transport believes it,
	// or refuses the server (see [Server]). Check finds what contradicts it.
	Durable bool
}

// Validate returns nil, or an error that wraps driver.ErrInvalid and names the option, its value
// and what is allowed.
func (o Options) Validate() error {
	switch {
	case o.Replicas < 0 || o.Replicas > maxReplicas:
		return fmt.Errorf("%w: %d replicas to wait for: must be 0 to %d", driver.ErrInvalid,
			o.Replicas, maxReplicas)
	case o.ReplicaTimeout != 0 && (o.ReplicaTimeout < time.Millisecond ||
		o.ReplicaTimeout > time.Second):
		return fmt.Errorf("%w: replica timeout %v: must be 1ms to 1s, or 0 for 100ms",
			driver.ErrInvalid, o.ReplicaTimeout)
	}
	return nil
}

// New returns a Backend that talks through transport. It owns transport from now on, and closes it.
func New(transport Transport, options Options) *Backend {
	if options.ReplicaTimeout <= 0 {
		options.ReplicaTimeout = 100 * time.Millisecond
	}
	b := &Backend{transport: transport, options: options, doubts: doubts{client: rand.Text()}}
	transport.Listen(b.hear)
	if options.ReadOnly {
		b.transport = readOnly{transport}
	}
	return b
}

// Close gives up all connections. Keys that are held stay held until their TTLs are over. Later
// calls fail with ErrUnavailable. So do calls under way, or with ErrUnknown if they were sent.
// Closing twice is safe. The error is always nil.
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
	vote    time.Duration // the TTL, if a server in quarantine must refuse the call; else 0
	effect  bool          // the script may have had an effect when it fails
	wait    bool          // for replicas
	patient bool          // ask again while the slot is being moved
	// where the route of notices goes in command, as it depends on the server; 0 for none
	route int
}

// evalsha begins the command of a script with that many keys. The caller appends the keys, and then
// the arguments.
func (s *Script) evalsha(to Command, keys string) Command {
	return append(to, "EVALSHA", s.SHA, keys)
}

// scratch is the space for the commands and replies of one call. A Conn keeps nothing of it.
type scratch struct {
	args     [32]string
	commands [6]Command
	replies  [6]Reply
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// free gives the space back. It clears the strings and replies in it, so that they are not kept
// alive.
func (s *scratch) free() {
	*s = scratch{}
	scratches.Put(s)
}

// maxRedirects bounds how often a call follows a cluster's redirections. More than two in a row
// mean that the servers do not agree with each other.
const maxRedirects = 4

var (
	infoCommands  = []Command{{"INFO", "server"}, {"INFO", "replication"}}
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

// A slot that is being moved has its keys on two servers, and neither runs a script on several of
// them (TRYAGAIN). Most slots have arrived soon, so a patient call asks again: it gives up after
// twice the longest pause. The pauses double.
const (
	firstMovingPause   = 10 * time.Millisecond
	longestMovingPause = 320 * time.Millisecond
)

// runOn is run on the connection to a server, and on others that the server redirects to.
func (b *Backend) runOn(ctx context.Context, conn Conn, c *call) (Reply, error) {
	for pause := firstMovingPause; ; pause *= 2 {
		reply, err := b.runThere(ctx, conn, c)
		// Nothing was done, so asking again is no retry. It keeps the order, as the caller still
		// waits.
		if !c.patient || !IsServerError(err, "TRYAGAIN") || pause > longestMovingPause ||
			!rest(ctx, pause) {
			return reply, err
		}
		if conn, err = b.transport.Conn(ctx, c.slot); err != nil {
			return Reply{}, err
		}
	}
}

// rest waits for so long, and reports whether ctx still goes on.
func rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// runThere is runOn without asking again while the slot is being moved.
func (b *Backend) runThere(ctx context.Context, conn Conn, c *call) (Reply, error) {
	asking := false
	for redirects, loads := 0, 0; ; {
		reply, err := b.once(ctx, conn, c, asking)
		if err != nil || reply.Kind != Failure {
			return reply, err
		}
		failure := b.failure(conn, reply, c.effect)
		redirect := parseRedirect(reply.Str)
		switch {
		case loads == 0 && IsServerError(failure, "NOSCRIPT"):
			// The script cache was flushed, or another server loaded the scripts. Nothing was done,
			// so sending the source is no retry. It keeps the order, as the caller still waits.
			loads++
			c.command[0], c.command[1] = "EVAL", c.script.Source
		case redirect.address != "" && redirects < maxRedirects:
			redirects++
			asking = redirect.ask
			slot := c.slot
			if asking {
				slot = Slots
			}
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

// once sends the script once, together with the questions that belong to it. It returns the reply,
// which may be a Failure. Any other reply counts: the server may vote, and replicas have the
// change.
func (b *Backend) once(ctx context.Context, conn Conn, c *call, asking bool) (Reply, error) {
	server := conn.Server()
	memory := ""
	if c.vote > 0 {
		var err error
		if memory, err = b.mayVote(ctx, conn, server, c.vote); err != nil {
			return Reply{}, err
		}
	}
	space := scratches.Get().(*scratch)
	defer space.free()
	commands := space.commands[:0]
	vouch := b.hasToVouch(conn, c.vote)
	if vouch {
		commands = append(commands, infoCommands...)
	}
	if asking {
		commands = append(commands, askingCommand)
	}
	commands = append(commands, c.command)
	if c.wait {
		commands = append(commands, b.waitCommand())
	}
	if b.testifies(memory) {
		commands = append(commands, memoryCommand)
	}
	replies := space.replies[:len(commands)]
	if err := conn.Do(ctx, commands, replies); err != nil {
		return Reply{}, err
	}
	if vouch {
		if err := b.vouch(conn, replies[:len(infoCommands)]); err != nil {
			return Reply{}, err
		}
		replies = replies[len(infoCommands):]
	}
	if asking {
		replies = replies[1:]
	}
	reply := replies[0]
	if reply.Kind == Failure {
		return reply, nil
	}
	if err := b.admitted(ctx, conn, server, c.vote, memory,
		&replies[len(replies)-1]); err != nil {
		return Reply{}, err
	}
	if c.wait {
		if err := b.waited(conn, replies[1]); err != nil {
			return Reply{}, err
		}
	}
	return reply, nil
}

// failure returns the driver's error for an error reply.
func (b *Backend) failure(conn Conn, reply Reply, effect bool) *driver.Error {
	server := conn.Server()
	if server == nil {
		return ServerFailure("", reply.Str, effect)
	}
	return ServerFailure(server.Name, reply.Str, effect)
}

// ready returns an error if a call cannot be made at all: ctx has ended, or the Backend is closed.
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
	return Command{"WAIT", strconv.Itoa(b.options.Replicas),
		strconv.FormatInt(b.options.ReplicaTimeout.Milliseconds(), 10)}
}

// waited judges the reply to WAIT.
func (b *Backend) waited(conn Conn, reply Reply) error {
	if reply.Kind == Failure {
		return ServerFailure(nameOf(conn), reply.Str, true)
	}
	if reply.Int < int64(b.options.Replicas) {
		return &driver.Error{Node: nameOf(conn), Maybe: true,
			Err: fmt.Errorf("%d replicas confirmed within %v, %d wanted",
				reply.Int, b.options.ReplicaTimeout, b.options.Replicas)}
	}
	return nil
}

// validate checks what the kernel promises of a claim. A script would take any other value for
// something else.
func validate(claim *driver.Claim) error {
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refuse("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case Reserved(claim.Key):
		return refuse("key %.40q is reserved: use one that does not begin with %q", claim.Key,
			Namespace)
	case claim.Owner == "" || len(claim.Owner) > maxOwner:
		return refuse("owner value of %d bytes: must have 1 to %d", len(claim.Owner), maxOwner)
	case claim.Owner == sharedValue:
		return refuse("owner value %q is reserved: NewOwner makes others", claim.Owner)
	case claim.TTL < time.Millisecond:
		return refuse("TTL %v: must be at least %v", claim.TTL, time.Millisecond)
	case claim.Token >= maxExact || claim.Block >= maxExact || uint64(claim.Token)+
		claim.Block >= maxExact:
		return refuse("token %d with block %d: must be less than 2^53", claim.Token, claim.Block)
	case claim.Ticket >= maxExact:
		return refuse("ticket %d: must be less than 2^53", claim.Ticket)
	}
	return nil
}

// maxExact bounds the integers that Lua and sorted sets, whose numbers are floating point, keep
// exact.
const maxExact = 1 << 53

func refuse(format string, args ...any) *driver.Error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf(format, args...)}
}

// strange returns the error for a reply that no script of ours gives.
func strange(what string, reply Reply) error {
	return &driver.Error{Maybe: true, Err: fmt.Errorf("unexpected reply to %s: kind %d, %.40q",
		what, reply.Kind, reply.Str)}
}

// lastMilliseconds saves formatting the same TTL over and over.
var lastMilliseconds atomic.Pointer[formatted]

type formatted struct {
	d    time.Duration
	text string
}

// milliseconds formats a duration for the server, rounded up: a lease there must not end before the
// client's.
func milliseconds(d time.Duration) string {
	if last := lastMilliseconds.Load(); last != nil && last.d == d {
		return last.text
	}
	text := strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
	lastMilliseconds.Store(&formatted{d, text})
	return text
}
