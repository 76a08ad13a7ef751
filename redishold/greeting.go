package redishold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// firstWords are what a server sent first on a connection. A server that refuses to talk says why
// and hangs up, but the library often reports only the hang-up.
type firstWords struct {
	heard bool // set by the one goroutine that reads
	text  atomic.Pointer[string]
}

// maxFirstWords is how much of them is kept.
const maxFirstWords = 512

// hear notes what has been read.
func (w *firstWords) hear(data []byte) {
	if w.heard || len(data) == 0 {
		return
	}
	w.heard = true
	text := string(data[:min(len(data), maxFirstWords)])
	w.text.Store(&text)
}

// failure returns the server's own reason for not serving this connection, or nil if it gave none.
func (w *firstWords) failure(node string) *driver.Error {
	text := w.text.Load()
	if text == nil {
		return nil
	}
	if isTLSAlert(*text) {
		return &driver.Error{Node: node, Permanent: true,
			Err: errors.New("the server wants TLS: begin the URL with rediss")}
	}
	line, _, _ := strings.Cut(*text, "\r\n")
	words, ok := strings.CutPrefix(line, "-")
	if !ok {
		return nil
	}
	return refusalOf(node, words)
}

// refusalOf returns the error for a server that answers a greeting with an error.
func refusalOf(node, words string) *driver.Error {
	failure := protocol.ServerFailure(node, words, false)
	switch {
	case protocol.IsServerError(failure, "NOPROTO"):
		failure.Err = fmt.Errorf("the server is older than the oldest supported, Redis %s: %w",
			oldest, failure.Err)
	case protocol.IsServerError(failure, "NOAUTH"): // its words are about HELLO
		failure.Err = fmt.Errorf("the server wants a password, which is missing in the URL, "+
			"behind '//' and with an '@' after it: %w", failure.Err)
	}
	return failure
}

// isTLSAlert reports whether a server has answered with an alert of TLS: type 21 and version 3.x.
func isTLSAlert(text string) bool { return strings.HasPrefix(text, "\x15\x03") }

// greetFailure judges an error of the first commands on a connection.
func (c *conn) greetFailure(err error) error {
	if text, ok := serverText(err); ok {
		return refusalOf(c.name, text)
	}
	if failure := c.first.failure(c.name); failure != nil {
		return failure
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return c.node.silent(fmt.Sprintf("accepts connections and does not answer within %v",
			dialTimeout), err)
	}
	// The server hung up without a word.
	hint := ""
	switch g := c.node.config; {
	case g.tls == nil && !g.unix:
		hint = " (as from a server that wants TLS)"
	case g.tls != nil && len(g.tls.Certificates) == 0 && g.tls.GetClientCertificate == nil:
		hint = " (as from a server that wants a client certificate)"
	}
	return &driver.Error{Node: c.name, Err: fmt.Errorf("connected, and then%s: %w", hint, err)}
}

// silent returns the error for a server that has accepted a connection and does not answer, as does
// describes. ended is the error of the time that was over.
func (n *node) silent(does string, ended error) error {
	text := "it " + does + ": it may be stopped or overloaded"
	if n.config.tls == nil && !n.config.unix {
		text += ", or want TLS"
	}
	return &driver.Error{Node: n.name, Err: &silentError{text, ended}}
}

type silentError struct {
	text  string
	ended error
}

func (e *silentError) Error() string { return e.text }

func (e *silentError) Unwrap() error { return e.ended }
