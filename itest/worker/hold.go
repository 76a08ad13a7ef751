package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/itest/counters"
	"github.com/holdfast-go/holdfast/itest/history"
)

// holding is a lock at work.
type holding struct {
	c      *client
	op     int
	lock   *holdfast.Lock
	shared bool           // others may share the key, so it only reads
	known  counters.Reply // what the store said last
	until  int64          // the last deadline that was recorded
}

func (c *client) holding(op int, lock *holdfast.Lock, shared bool) *holding {
	return &holding{c: c, op: op, lock: lock, shared: shared, until: deadline(lock)}
}

// hold works with the lock for some time, as long as the lock says that it is held, or, if it is
// careless, whatever the lock says. It writes to the store now and then, or reads if it shares the
// key.
func (c *client) hold(draw *rand.Rand, op int, lock *holdfast.Lock, t terms) {
	h := c.holding(op, lock, t.shared)
	if !h.use(true) {
		return
	}
	start := time.Now()
	end, lower := start.Add(t.work), start.Add(between(draw, 0, t.work))
	for (t.careless || lock.Err() == nil) && time.Now().Before(end) {
		h.extended()
		if draw.IntN(50) == 0 {
			extend, cancel := context.WithTimeout(context.Background(), c.TTL)
			lock.Extend(extend)
			cancel()
			continue
		}
		if t.lower && lock.Err() == nil && time.Now().After(lower) {
			t.lower = !h.downgrade()
		}
		// Between the look at the lock and the write a process may be paused for as long as it
		// likes: that is what tokens are for.
		if draw.IntN(4) == 0 && !h.use(false) {
			return
		}
		time.Sleep(between(draw, 0, min(t.work/3, c.Work)))
	}
	if t.careless || lock.Err() == nil {
		h.use(false)
	}
}

// extended records that the lock is held for longer now. What the lock says of itself counts, even
// if it says that it is held after its deadline.
func (h *holding) extended() {
	now, d := history.Now(), deadline(h.lock)
	if held := h.lock.Err() == nil; held && (d > h.until+int64(h.c.TTL/20) || now > h.until) {
		h.until = max(d, now)
		h.c.log.Add(history.Record{Kind: history.Extend, Op: h.op, Until: h.until})
	}
}

// downgrade lets others share the key. It reports whether that was confirmed. If not, others may
// still share the key.
func (h *holding) downgrade() bool {
	h.shared = true
	h.c.log.Add(history.Record{Kind: history.Lower, Op: h.op})
	ctx, cancel := context.WithTimeout(context.Background(), h.c.TTL)
	defer cancel()
	err := h.lock.Downgrade(ctx)
	h.c.log.Add(history.Record{Kind: history.Lowered, Op: h.op, Err: class(err)})
	return err == nil
}

// use does with the store what the lock allows. It reports whether the guard accepted it.
func (h *holding) use(enter bool) bool {
	if h.shared {
		return h.ask(history.Look, counters.Args{Look: true})
	}
	return h.write(enter)
}

// write adds one to the counter in the store, or only enters. It reports whether the guard accepted
// it.
func (h *holding) write(enter bool) bool {
	return h.ask(history.Write,
		counters.Args{Enter: enter, Read: h.known.Value, Loose: h.known.Loose})
}

func (h *holding) ask(kind history.Kind, args counters.Args) bool {
	args.Key, args.Token = keyOf(h.lock), uint64(h.lock.Token())
	args.Owner = fmt.Sprintf("%s/%d", h.c.Client, h.op)
	r := history.Record{Kind: kind, At: history.Now(), Op: h.op, Outcome: history.Unanswered}
	if err := h.c.store.Call("Counters.Do", args, &h.known); err == nil {
		r.Outcome = history.Refused
		if h.known.Accepted {
			r.Outcome, r.Value = history.Accepted, h.known.Value
		}
	}
	r.Until = history.Now()
	h.c.log.Add(r)
	accepted := h.known.Accepted
	h.known.Accepted = false // false is not sent, and would leave the last answer standing
	return accepted
}
