package protocol

import "context"

// Transport is what this package needs of a client library: connections to the servers of one
// deployment. Its methods are safe for concurrent use. Their errors are *[driver.Error]s.
type Transport interface {
	// Ordered reports whether no request is ever overtaken by a later one of the same slot, even if
	// the connection breaks between them. If not, the scripts refuse acquisitions that arrive after
	// their release, which costs more commands.
	Ordered() bool

	// Conn returns the connection to the server that serves the slot, and makes it if there is
	// none. ctx ends the wait, but the connection is still made, because the next caller needs it
	// too.
	Conn(ctx context.Context, slot uint16) (Conn, error)

	// Shard names the server that serves the slot, as far as that is known without a request.
	// Commands for slots of one shard may be sent together.
	Shard(slot uint16) string

	// Follow returns the connection to the server that another one named: in a MOVED of the slot,
	// or, if the slot is Slots, in an ASK. It fails if the deployment is no cluster.
	Follow(ctx context.Context, slot uint16, address string) (Conn, error)

	// All returns a connection to each server that serves slots. It fails if one of them cannot be
	// reached.
	All(ctx context.Context) ([]Conn, error)

	// Cluster reports whether keys of different slots have to be sent in different commands.
	Cluster() bool

	// Listen has the transport call f with each message on its channels, and with what the
	// connection knows about its server, as in Conn.Server. f does not block. Listen is called
	// once, before any other method.
	Listen(f func(server *Server, message string))

	// Close gives up all connections. Calls that are under way fail. It may be called more than
	// once.
	Close() error
}

// Conn carries commands to one server. Commands of one slot take effect in the order of the calls
// of Do, even if Do returned early because its ctx had ended. It is safe for concurrent use.
type Conn interface {
	// Do sends the commands one after the other, on one connection, and waits for their replies.
	// replies is as long as commands. Do returns when ctx ends, and keeps nothing of commands and
	// replies. An error means that no reply is known. It is ErrUnknown if the commands may have
	// been sent, and otherwise ErrUnavailable.
	Do(ctx context.Context, commands []Command, replies []Reply) error

	// Route returns the route by which notices for the slot reach this transport's Listen: P or S
	// for PUBLISH or SPUBLISH, then the channel. When Route returns, the channel is subscribed. If
	// there is no route, it returns "", and waiters hear of grants when they next ask.
	Route(ctx context.Context, slot uint16) string

	// Server returns what is known about the server. It returns nil if the library makes
	// connections as it likes. Then each request that depends on the server asks it at the same
	// time.
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
	Kind Kind    // which of the other fields is set
	Int  int64   // of an Integer
	Str  string  // of a String or Failure
	List []Reply // of a List
}
