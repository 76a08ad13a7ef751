package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// maxUntold is how many events may wait for a slow observer. Further events are dropped and
// counted.
const maxUntold = 10_000

// observer passes events to the hooks of one WithHooks, or to the logger, one after the other. It
// does so on a goroutine of its own, which exists only while there are events. So hooks or a logger
// that block or panic do no harm to locks and other observers, and may call the Locker.
type observer struct {
	logger *slog.Logger // nil: none
	log    *observer    // the observer of the logger; nil: this one

	mu      sync.Mutex
	events  []func() // those before told have been passed on
	told    int
	dropped int
	running bool
}

// tell queues the event. It never blocks, and may be called under any mutex.
func (o *observer) tell(event func()) {
	if o.queue(event) && o.log != nil {
		// At once: a hook may block for ever, and how many events are dropped is not known before.
		o.note(slog.LevelWarn, "holdfast: hooks are too slow: events are dropped from now on")
	}
}

// queue reports whether the event was dropped, as the first one since that was last told.
func (o *observer) queue(event func()) (firstDropped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events)-o.told >= maxUntold {
		o.dropped++
		return o.dropped == 1
	}
	o.events = append(o.events, event)
	if !o.running {
		o.running = true
		go o.run()
	}
	return false
}

// run passes on all events. A hook may end the goroutine, as a failing test does; then a new
// goroutine goes on.
func (o *observer) run() {
	finished := false
	defer func() {
		if !finished {
			go o.run()
		}
	}()
	for event := o.next(); event != nil; event = o.next() {
		o.handle(event)
	}
	finished = true
}

// next takes out the next event. If there is none, it returns nil, and the goroutine counts as
// ended.
func (o *observer) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dropped := o.dropped; dropped > 0 &&
		(len(o.events)-o.told <= maxUntold/2 || dropped >= maxUntold) {
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

// handle calls event, and logs a panic. If the logger panics then, that panic is dropped.
func (o *observer) handle(event func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }()
			o.note(slog.LevelError, "holdfast: a hook or the logger panicked", "panic",
				fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	event()
}

// note writes to the log, through the observer of the logger.
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

// contain calls tell, which ends contexts, and logs a panic of it. A context of a caller's own kind
// may panic, and contain is used in goroutines of the Locker, where a panic would end the process.
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

// tellAll calls the functions, which tell the ends of locks, and returns when all have returned.
// Each has a goroutine of its own: a context of one lock may take long to end, and no other lock
// waits for it.
func (l *Locker) tellAll(tells []func()) {
	if len(tells) == 1 {
		l.contain(tells[0])
		return
	}
	var told sync.WaitGroup
	for _, tell := range tells {
		told.Go(func() { l.contain(tell) })
	}
	told.Wait()
}

// tellApart calls tell in a goroutine of its own, for a caller that must not wait for the contexts
// of a lock. The caller holds the mutex of a shard that is not closed.
func (l *Locker) tellApart(tell func()) { l.tasks.Go(tell) }

// warn writes to the log, on the log's own goroutine.
func (l *Locker) warn(message string, args ...any) {
	if l.log.logger != nil {
		l.log.tell(func() { l.log.note(slog.LevelWarn, message, args...) })
	}
}
