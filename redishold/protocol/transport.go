package protocol

import "context"

// Transport is what this package needs of a client library: connections to the servers of one deployment.
// Its methods are safe for concurrent use. Their errors are *[driver.Error]s.
type Transport interface {
	// Ordered reports whether a request can never be overtaken by one of the same slot that was made after
	// it, also when the connection breaks between them. Of a Transport that is not ordered, the scripts keep
	// out acquisitions that arrive after their release, which costs more commands.
	Ordered() bool

	// Conn returns the connection to the server that serves the slot, and makes it if there is none. It
	// returns when ctx ends, while the connection goes on being made for whoever needs it next.
	Conn(ctx context.Context, slot uint16) (Conn, error)

	// Shard names the server that serves the slot, as far as is known without asking. Commands for slots of
	// one shard may be sent to it together.
	Shard(slot uint16) string

	// Follow returns the connection to the server that another one named: in a MOVED of the slot, or, if the
	// slot is Slots, in an ASK. Of a deployment that is no cluster it gives an error.
	Follow(ctx context.Context, slot uint16, address string) (Conn, error)

	// All returns a connection to each server that serves slots. It fails if one of them can not be reached.
	All(ctx context.Context) ([]Conn, error)

	// Cluster reports whether keys of different slots have to be sent in different commands.
	Cluster() bool

	// Listen has the transport pass what arrives on its channels to f, which does not block. It is called
	// once, before anything else.
	Listen(f func(message string))

	// Close gives up all connections. Calls that are under way fail. It may be called more than once.
	Close() error
}

// Conn carries commands to one server. Commands of one slot take effect in the order in which Do was called
// with them, also if Do returned early because its ctx had ended.
type Conn interface {
	// Do sends the commands one after the other, on one connection, and waits for their replies, of which
	// there are as many. It returns when ctx ends, and keeps nothing of commands and replies. An error means
	// that no reply is known, and says whether the commands may have been sent.
	Do(ctx context.Context, commands []Command, replies []Reply) error

	// Route returns the route on which notices for the slot come to this transport's Listen, for a waiter to
	// be found by: P or S for PUBLISH or SPUBLISH, then the channel. What is sent after it has returned finds
	// the channel subscribed. It is empty if there is none: then waiters rely on their heartbeats.
	Route(ctx context.Context, slot uint16) string

	// Server says what was found out about the server when the connection was made. It is nil if the library
	// makes connections as it likes; then the server is asked together with each request that depends on it.
	Server() *Server
}

// Command is a Redis command: its name, and its arguments.
type Command []string

// Kind says what a Reply is.
type Kind uint8

const (
	Nil     Kind = iota // nothing
	Integer             // Reply.Int
	String              // Reply.Str
	List                // Reply.List
	Failure             // an error of the server: Reply.Str is its text
)

// Reply is what a server answered to a command.
type Reply struct {
	Kind Kind    // which of the others counts
	Int  int64   // of an Integer
	Str  string  // of a String or Failure
	List []Reply // of a List
}
