// Package waitline shows that somebody waits for a lock: on a terminal in one line that is kept up to date and
// erased in the end, elsewhere in a line when the wait begins and one when it has succeeded.
package waitline

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
)

// Line shows one wait. Nothing is shown before the first Update: who does not wait is not told.
type Line struct {
	out   io.Writer
	name  string
	width func() int // of the terminal; nil if there is none

	mu      sync.Mutex
	latest  holdfast.WaitingEvent
	at      time.Time // when latest came
	started bool

	fresh chan struct{} // has room for one
	end   chan bool     // whether the lock was acquired
	done  chan struct{} // closed when all is written
}

// New returns a Line for a wait for the lock called name. width returns how many columns the terminal has
// to which out writes, and is nil if it is none.
func New(out io.Writer, name string, width func() int) *Line {
	return &Line{
		out:   out,
		name:  name,
		width: width,
		fresh: make(chan struct{}, 1),
		end:   make(chan bool, 1),
		done:  make(chan struct{}),
	}
}

// Update shows what the backend has said. It never blocks, so it can be a hook of a Locker.
func (l *Line) Update(e holdfast.WaitingEvent) {
	l.mu.Lock()
	l.latest, l.at = e, time.Now()
	if !l.started {
		l.started = true
		go l.run()
	}
	l.mu.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

// Last returns what the backend has said last, and false if nobody had to wait.
func (l *Line) Last() (holdfast.WaitingEvent, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest, l.started
}

// End ends the wait, and returns when that is shown; or after at most a second, if out takes nothing. It is called
// once, after the last Update.
func (l *Line) End(acquired bool) {
	l.mu.Lock()
	started := l.started
	l.mu.Unlock()
	if !started {
		return
	}
	l.end <- acquired
	select {
	case <-l.done:
	case <-time.After(time.Second):
	}
}

func (l *Line) run() {
	defer close(l.done)
	if l.width == nil {
		l.print()
		return
	}
	l.keep()
}

// print is for files and pipes.
func (l *Line) print() {
	l.mu.Lock()
	e := l.latest
	l.mu.Unlock()
	fmt.Fprintf(l.out, "holdfast: waiting for %s\n", strings.Join(l.facts(e, 0), ", "))
	if <-l.end {
		l.mu.Lock()
		waited := l.latest.Waited + time.Since(l.at)
		l.mu.Unlock()
		fmt.Fprintf(l.out, "holdfast: acquired %s after %v\n", l.quoted(), waited.Round(100*time.Millisecond))
	}
}

// keep is for terminals.
func (l *Line) keep() {
	const erase = "\r\x1b[K"
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-l.fresh:
			tick.Reset(time.Second)
		case <-tick.C:
		case <-l.end:
			io.WriteString(l.out, erase)
			return
		}
		l.mu.Lock()
		e, since := l.latest, time.Since(l.at)
		l.mu.Unlock()
		e.Waited += since
		text := fmt.Sprintf("holdfast: waiting %v for %s", e.Waited.Truncate(time.Second), strings.Join(l.facts(e, since), ", "))
		// The last column stays free: with it some terminals have begun the next line.
		io.WriteString(l.out, erase+Fit(text, l.width()-1))
	}
}

// facts are the name of the lock and what is known about the wait. since is how old the event is.
func (l *Line) facts(e holdfast.WaitingEvent, since time.Duration) []string {
	facts := []string{l.quoted()}
	if e.Holder.Value != "" {
		facts = append(facts, "held by "+Printable(e.Holder.String()))
	}
	if left := e.ExpiresIn - since; left > 0 {
		facts = append(facts, "lease ends in "+max(left.Round(time.Second), time.Second).String())
	}
	if e.Place > 0 {
		facts = append(facts, "place "+strconv.Itoa(e.Place)+" in the queue")
	}
	return facts
}

func (l *Line) quoted() string { return strconv.Quote(l.name) }

// Printable replaces all that is not a visible character or a space, so that nothing in a text can move the cursor,
// change colours or reverse the direction of writing.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Fit cuts a printable text so that it takes at most so many columns. Every character outside ASCII is taken
// to be two columns wide: none is wider, and how wide it really is depends on the terminal.
func Fit(text string, columns int) string {
	const mark = "..."
	total, keep := 0, 0
	for i, r := range text {
		if total+len(mark) <= columns {
			keep = i
		}
		total++
		if r > unicode.MaxASCII {
			total++
		}
	}
	switch {
	case total <= columns:
		return text
	case columns < len(mark):
		return mark[:max(columns, 0)]
	default:
		return text[:keep] + mark
	}
}
