package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
)

// messages writes to stderr for those who must not wait for it: that nobody reads the other end of a pipe is no reason
// to renew no lock and to stop no command.
type messages struct {
	done chan struct{} // closed when all is written

	mu    sync.Mutex
	queue chan string
	ended bool // queue is closed
}

func newMessages(out io.Writer) *messages {
	m := &messages{queue: make(chan string, 64), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for text := range m.queue {
			io.WriteString(out, text)
		}
	}()
	return m
}

// printf says something, on a line of its own. It never blocks: if too much is waiting to be written, it is dropped.
func (m *messages) printf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	select {
	case m.queue <- message(fmt.Sprintf(format, args...)):
	default:
	}
}

// flush ends the messages and returns when all is written; or after at most a second, if it is not taken.
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

// userinfo is what may be a password within an address.
var userinfo = regexp.MustCompile(`//\S*@`)

// message is a text as it goes to stderr: with the name of the program, without what would move the cursor,
// and without passwords, which an error of a client library might repeat.
func message(text string) string {
	text = strings.TrimPrefix(text, "holdfast: ")
	text = userinfo.ReplaceAllString(text, "//...@")
	text = strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return "holdfast: " + text + "\n"
}
