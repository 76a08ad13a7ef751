package redismodel

import "time"

// Link says what happens to a Client's requests. Each function is called once for each request, or
// gap, with the server's mutex held. So it is never called twice at once if Clients of different
// Servers draw from different sources. A nil function means no delay, no gap, no cut. So does a
// negative time.
type Link struct {
	// Request is how long a request takes to the server, and Reply how long a reply, or a notice,
	// takes back. Nothing overtakes what was sent before it on the same connection.
	Request, Reply func() time.Duration

	// Gap is how long the server turns to others between two commands that were sent together.
	Gap func() time.Duration

	// Cut says whether the connection breaks in a request of that many commands. If cut is true,
	// the server gets as many of them as arrive says, and no reply comes back. If arrive is 0, the
	// request is lost. If all commands arrive, only the replies are lost.
	Cut func(commands int) (arrive int, cut bool)

	// Arrived is told of each request of a [Library] that the server begins to carry out: how old
	// it is by the server's clock, and its first command. Its caller may have left long ago.
	Arrived func(age time.Duration, command []string)
}

// draw calls one of a Link's functions.
func draw(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return max(0, f())
}

// Direction is a way that requests or replies take.
type Direction uint8

const (
	Requests Direction            = 1 << iota // from the client to the server
	Replies                                   // from the server to the client
	Both     = Requests | Replies             // either
)
