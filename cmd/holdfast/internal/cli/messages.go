package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// messages writes to stderr in the background: a blocked stderr must not delay renewals or signals.
type messages struct {
	names []string      // see message
	done  chan struct{} // closed when the queue is closed and written

	mu    sync.Mutex
	queue chan string
	ended bool // queue is closed
}

func newMessages(out io.Writer, names ...string) *messages {
	m := &messages{names: names, queue: make(chan string, 64), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for text := range m.queue {
			io.WriteString(out, text)
		}
	}()
	return m
}

// printf queues one line. It never blocks: if the queue is full, the line is dropped.
func (m *messages) printf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	select {
	case m.queue <- message(fmt.Sprintf(format, args...), m.names...):
	default:
	}
}

// flush closes the queue and waits until it is written, for a second at most.
func (m *messages) flush() {
	m.mu.Lock()
	if !m.ended {
		m.ended = true
		close(m.queue)
	}
	m.mu.Unlock()
	select {
	case <-m.done:
	case <-time.After(time.Second):
	}
}

// write writes a text. It gives up when ctx ends, or after a second.
func write(ctx context.Context, out io.Writer, text string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	go func() {
		defer cancel()
		io.WriteString(out, text)
	}()
	<-ctx.Done()
}

var (
	// login matches the part of an address before its last @.
	login = pattern(`\b([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)

	// anAddress matches a whole address, up to the quote that ends it: it may have spaces.
	anAddress = pattern(`\b([a-zA-Z][a-zA-Z0-9+.-]*://)(\\.|[^"\\])+`)
)

// pattern returns a pattern that is compiled when it is needed first: most starts of the program
// say nothing.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// loginForms are how help and errors describe a login. They are no secret.
var loginForms = []string{"[user[:password]@]", "[user:password@]"}

// withoutLogins hides the logins of addresses. It shows loginForms, and names where they are quoted
// as in errors, even if they look like an address.
func withoutLogins(text string, names []string) string {
	shown := slices.Clone(loginForms)
	for _, name := range names {
		shown = append(shown, strconv.Quote(name))
	}
	return replaceAround(text, shown)
}

// replaceAround hides logins everywhere in the text but in the parts listed in shown.
func replaceAround(text string, shown []string) string {
	if len(shown) == 0 {
		return login().ReplaceAllString(text, "$1...@")
	}
	pieces := strings.Split(text, shown[0])
	for i := range pieces {
		pieces[i] = replaceAround(pieces[i], shown[1:])
	}
	return strings.Join(pieces, shown[0])
}

// withoutAddresses hides everything of an address but its scheme.
func withoutAddresses(text string) string { return anAddress().ReplaceAllString(text, "$1...") }

// shown joins arguments for an error. An address is cut after its scheme: it may have a password,
// and stands there if --on was forgotten.
func shown(args []string) string {
	texts := make([]string, len(args))
	for i, arg := range args {
		scheme, _, isAddress := strings.Cut(arg, "://")
		texts[i] = scheme
		if isAddress {
			texts[i] += "://..."
		}
	}
	return strings.Join(texts, " ")
}

// lineBreaks become a space: a message is one line, so that a log keeps it together.
var lineBreaks = pattern(`\s*\n\s*`)

// message formats a text for stderr: one line, with the name of the program, without characters
// that move the cursor. It hides passwords, which an error of a client library may repeat. names
// are names of locks and commands, which may look like an address and are shown.
func message(text string, names ...string) string {
	text = strings.TrimPrefix(text, "holdfast: ")
	text = lineBreaks().ReplaceAllString(strings.TrimSpace(text), " ")
	text = withoutLogins(text, names)
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return "holdfast: " + text + "\n"
}
