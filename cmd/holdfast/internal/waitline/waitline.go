// Package waitline shows the wait for locks. A terminal gets one line, which is kept up to date and
// erased in the end. A file or pipe gets a line when the wait for a lock begins, and one when all
// were acquired.
package waitline

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
)

// Line shows one wait. It shows nothing before the first Update, so nothing if there is no wait.
type Line struct {
	out   io.Writer
	names []string
	width func() int // of the terminal; nil if there is none
	since Since

	asking context.Context // for since; ends with the wait
	ended  context.CancelFunc

	mu      sync.Mutex
	latest  holdfast.WaitingEvent
	at      time.Time // when latest came
	started bool
	begin   time.Time       // of the wait
	holder  holdfast.Holder // the last one that an event named
	seen    time.Time       // when an event named it first

	fresh chan struct{} // of capacity 1: there is a new event
	end   chan bool     // whether the locks were acquired
	done  chan struct{} // closed when everything is written
}

// Since returns when a holder got the lock on a key, or the zero time if that is not known. It
// returns soon after ctx ends.
type Since func(ctx context.Context, key string, holder holdfast.Holder) time.Time

// New returns a Line for a wait for the locks with these names. The wait is for one of them at a
// time. width returns the columns of the terminal behind out; it is nil if out is no terminal. The
// line calls since once for each holder in a row, and Held calls it again; since may be nil.
func New(out io.Writer, names []string, width func() int, since Since) *Line {
	asking, ended := context.WithCancel(context.Background())
	return &Line{
		out:    out,
		names:  names,
		width:  width,
		since:  since,
		asking: asking,
		ended:  ended,

		fresh: make(chan struct{}, 1),
		end:   make(chan bool, 1),
		done:  make(chan struct{}),
	}
}

// Update shows an event. It never blocks, so it can be a hook of a Locker.
func (l *Line) Update(e holdfast.WaitingEvent) {
	l.mu.Lock()
	l.latest, l.at = e, time.Now()
	if e.Holder.Value != "" && e.Holder != l.holder {
		l.holder, l.seen = e.Holder, l.at
	}
	if !l.started {
		l.started, l.begin = true, l.at.Add(-e.Waited)
		go l.run()
	}
	l.mu.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

// Last returns the last event, and false if there was none.
func (l *Line) Last() (holdfast.WaitingEvent, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest, l.started
}

// End ends the wait and waits until that is shown, for a second at most. Call it once, after the
// last Update.
func (l *Line) End(acquired bool) {
	l.mu.Lock()
	started := l.started
	l.mu.Unlock()
	l.ended()
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

// print shows the wait in a file or pipe.
func (l *Line) print() {
	known, first := "", true
	for {
		select {
		case <-l.fresh:
		case acquired := <-l.end:
			if acquired {
				fmt.Fprintf(l.out, "holdfast: acquired %s after %v\n", Quote(l.names),
					time.Since(l.begin).Round(100*time.Millisecond))
			}
			return
		}
		l.mu.Lock()
		e := l.latest
		l.mu.Unlock()
		if !first && e.Key == known {
			continue
		}
		known, first = e.Key, false
		facts := strings.Join(l.facts(e, 0, l.heldSince(e)), ", ")
		fmt.Fprintf(l.out, "holdfast: waiting for %s\n", facts)
	}
}

// keep shows the wait on a terminal.
func (l *Line) keep() {
	const erase = "\r\x1b[K"
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var known holdfast.Holder
	var held time.Time
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
		if e.Holder != known {
			known, held = e.Holder, l.heldSince(e)
		}
		e.Waited += since
		text := fmt.Sprintf("holdfast: waiting %v for %s", e.Waited.Truncate(time.Second),
			strings.Join(l.facts(e, since, held), ", "))
		// The last column stays free: some terminals begin the next line when it is written.
		io.WriteString(l.out, erase+Fit(text, l.width()-1))
	}
}

// heldSince returns when the holder got the lock, or the zero time if that is not known.
func (l *Line) heldSince(e holdfast.WaitingEvent) time.Time {
	if l.since == nil || e.Holder.Value == "" {
		return time.Time{}
	}
	return l.since(l.asking, e.Key, e.Holder)
}

// facts returns the name of the lock and what is known about the wait. since is the age of the
// event. held is when the holder got the lock.
func (l *Line) facts(e holdfast.WaitingEvent, since time.Duration, held time.Time) []string {
	facts := []string{strconv.Quote(e.Key)}
	if e.Holder.Value != "" {
		facts = append(facts, "held by "+l.describe(e.Holder, held, e.ExpiresIn-since))
	}
	if e.Place > 0 {
		facts = append(facts, "place "+strconv.Itoa(e.Place)+" in the queue")
	}
	return facts
}

// Held describes a holder of a key, whose lease has left to go, 0 if that is not known. It calls
// since, and may be called after End.
func (l *Line) Held(key string, holder holdfast.Holder, left time.Duration) string {
	var at time.Time
	if l.since != nil {
		at = l.since(context.Background(), key, holder)
	}
	return l.describe(holder, at, left)
}

// describe describes a holder. at is when it got the lock, and left is what remains of its lease;
// zero means not known. Without at, describe says for how long this wait has known the holder. It
// adds that the lease is renewed, so that nobody takes the rest of the lease for the rest of the
// wait.
func (l *Line) describe(holder holdfast.Holder, at time.Time, left time.Duration) string {
	text := Printable(holder.String())
	if !at.IsZero() {
		text += " for " + max(time.Since(at), 0).Truncate(time.Second).String()
	} else if seen := l.seenFor(holder).Truncate(time.Second); seen > 0 {
		text += " for at least " + seen.String()
	}
	rest := max(left.Round(time.Second), time.Second)
	switch {
	case left <= 0:
		return text
	case holder.PID == 0: // of another library, which may not renew its leases
		return fmt.Sprintf("%s (lease ends in %v unless renewed)", text, rest)
	default:
		return fmt.Sprintf("%s (lease %v, renewed while it lives)", text, rest)
	}
}

// seenFor returns for how long this wait has known that the holder has the lock, 0 for a holder
// that it has not seen last.
func (l *Line) seenFor(holder holdfast.Holder) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder != l.holder {
		return 0
	}
	return time.Since(l.seen)
}

// Quote names locks: three of them, and how many more there are.
func Quote(names []string) string {
	const named = 3
	var text strings.Builder
	for i, name := range names[:min(named, len(names))] {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(strconv.Quote(name))
	}
	if more := len(names) - named; more > 0 {
		fmt.Fprintf(&text, " and %d more", more)
	}
	return text.String()
}

// Printable replaces everything but visible characters and spaces by "?", so that a text cannot
// move the cursor, change colours or reverse the direction of writing.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Fit cuts a printable text so that it takes at most so many columns. It counts two columns for
// each character outside ASCII: none is wider, and the real width depends on the terminal.
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
