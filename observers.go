package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// maxUntold is how many events may wait for one slow observer. What comes on top is dropped, and
// counted.
const maxUntold = 10_000

// observer tells the hooks of one WithHooks, or the logger, what has happened: one event after the
// other, on a goroutine of its own that exists while there is something to tell. So an observer
// that blocks or panics harms no lock and no other observer, and may call the Locker.
type observer struct {
	logger *slog.Logger // nil: none
	log    *observer    // tells the logger; nil: this one does

	mu      sync.Mutex
	events  []func() // those from told on are still to be told
	told    int
	dropped int
	running bool
}

// tell queues the event. It never blocks, and may be called under any mutex.
func (o *observer) tell(event func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events)-o.told >= maxUntold {
		o.dropped++
		return
	}
	o.events = append(o.events, event)
	if !o.running {
		o.running = true
		go o.run()
	}
}

// run tells all events. A hook may end the goroutine, as a failing test does; then another one goes
// on.
func (o *observer) run() {
	finished := false
	defer func() {
		if !finished {
			go o.run()
		}
	}()
	for event := o.next(); event != nil; event = o.next() {
		o.call(event)
	}
	finished = true
}

// next takes out the next event. With none left it returns nil, and the goroutine counts as ended.
func (o *observer) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dropped := o.dropped; dropped > 0 && len(o.events)-o.told <= maxUntold/2 {
		o.dropped = 0
		return func() {
			o.note(slog.LevelWarn, "holdfast: hooks or logger are too slow: events dropped",
				"events", dropped)
		}
	}
	if o.told == len(o.events) {
		o.events, o.told = o.events[:0], 0
		o.running = false
		return nil
	}
	if o.told > maxUntold {
		n := copy(o.events, o.events[o.told:])
		clear(o.events[n:])
		o.events, o.told = o.events[:n], 0
	}
	event := o.events[o.told]
	o.events[o.told] = nil
	o.told++
	return event
}

// call tells one event. If the logger panics while it reports a panic, nobody is left to tell.
func (o *observer) call(event func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }()
			o.note(slog.LevelError, "holdfast: a hook or the logger panicked", "panic",
				fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	event()
}

// note writes to the log, by way of the log's own observer if that is another one.
func (o *observer) note(level slog.Level, message string, args ...any) {
	if o.logger == nil {
		return
	}
	write := func() { o.logger.Log(context.Background(), level, message, args...) }
	if o.log != nil {
		o.log.tell(write)
		return
	}
	write()
}

// contain calls tell in a goroutine where nobody could recover from a panic. It ends contexts, and
// one of a caller's own kind may panic: that is logged, and must not end the process.
func (l *Locker) contain(tell func()) {
	defer func() {
		if p := recover(); p != nil && l.log.logger != nil {
			text, stack := fmt.Sprint(p), string(debug.Stack())
			l.log.tell(func() {
				l.log.note(slog.LevelError, "holdfast: a context panicked as its lock ended",
					"panic", text, "stack", stack)
			})
		}
	}()
	tell()
}

// warn writes to the log, elsewhere.
func (l *Locker) warn(message string, args ...any) {
	if l.log.logger != nil {
		l.log.tell(func() { l.log.note(slog.LevelWarn, message, args...) })
	}
}
