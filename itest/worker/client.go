package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
)

// client is what all goroutines of the process share.
type client struct {
	job.Job
	log    *history.Log
	store  *rpc.Client
	locker *holdfast.Locker
	ops    atomic.Int64
}

func dialStore(socket string) (*rpc.Client, error) { return rpc.Dial("unix", socket) }

// work takes turns on the keys until ctx ends.
func (c *client) work(ctx context.Context, number int) {
	next := c.Turns(number)
	for ctx.Err() == nil {
		draw := next()
		key, t := c.Keys[draw.IntN(len(c.Keys))], c.turn(draw)
		if c.Sharing {
			t.mayShare(draw, number == 0)
		}
		c.take(ctx, draw, key, t)
		pause(ctx, between(draw, 0, 20*time.Millisecond))
	}
}

// hurry takes turns, too, and releases each lock at once, until ctx ends. It pauses in between:
// otherwise it would leave no time of the machine to others.
func (c *client) hurry(ctx context.Context, number int) {
	next := c.Turns(number)
	for ctx.Err() == nil {
		draw := next()
		t := terms{wait: between(draw, 0, c.Wait/3), acquire: c.locker.Acquire}
		if draw.IntN(4) == 0 {
			t.work = between(draw, 0, c.Work/20)
		}
		if c.Sharing && draw.IntN(4) == 0 {
			t.share()
		}
		c.take(ctx, draw, c.Short[draw.IntN(len(c.Short))], t)
		pause(ctx, between(draw, 0, c.TTL/5))
	}
}

// terms are how one lock is acquired and held.
type terms struct {
	wait     time.Duration // for the lock, at most
	work     time.Duration // with the lock
	careless bool          // it is not looked at
	shared   bool          // as a reader does
	lower    bool          // it is downgraded at some point
	permits  int           // how many permits the semaphore has; 0 if the key is none
	acquire  func(context.Context, string, ...holdfast.AcquireOption) (*holdfast.Lock, error)
	options  []holdfast.AcquireOption
	with     func(op int, lock *holdfast.Lock) // what is done with the lock; nil: see hold
}

// share makes the terms those of a reader.
func (t *terms) share() {
	t.shared = true
	t.options = append(t.options, holdfast.WithShared())
}

// mayShare draws whether the lock is shared, and when. A goroutine that mostly reads comes again
// and again while others wait to write.
func (t *terms) mayShare(draw *rand.Rand, reads bool) {
	switch n := draw.IntN(6); {
	case n < 2 || reads && n < 5:
		t.share()
	case n < 3:
		t.lower = true
	}
}

// turn draws the terms of one acquisition.
func (c *client) turn(draw *rand.Rand) terms {
	t := terms{wait: between(draw, c.Wait/50, c.Wait), acquire: c.locker.Acquire}
	if draw.IntN(3) == 0 { // and then it is likely to be given up
		t.wait = between(draw, 0, c.Wait/50)
	}
	t.work = between(draw, 0, c.Work)
	switch draw.IntN(20) {
	case 0: // longer than a lease: it takes renewals
		t.work = between(draw, 20*c.Work, 40*c.Work)
	case 1, 2:
		t.work = between(draw, 0, 20*c.Work)
	}
	if draw.IntN(8) == 0 {
		t.options = append(t.options, holdfast.WithoutRenewal())
	}
	// Some do not look at their lock, and write even if it may be somebody else's: only the guard
	// stops them.
	if t.careless = draw.IntN(12) == 0; t.careless {
		t.work = between(draw, 10*c.Work, 40*c.Work)
		t.options = append(t.options, holdfast.WithoutRenewal())
	}
	if draw.IntN(8) == 0 {
		t.acquire = c.locker.TryAcquire
	}
	return t
}

// take makes one acquisition, from the call of Acquire to the release.
func (c *client) take(ctx context.Context, draw *rand.Rand, key string, t terms) {
	asked, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()

	op := int(c.ops.Add(1))
	c.log.Add(history.Record{Kind: history.Ask, Op: op, Key: key, Shared: t.shared,
		Permits: t.permits, Until: history.Now() + int64(t.wait)})
	lock, err := t.acquire(asked, key, t.options...)
	if err != nil {
		c.log.Add(history.Record{Kind: history.Refuse, Op: op, Err: class(err)})
		if asked.Err() == nil {
			c.rest(ctx, draw, err)
		}
		return
	}
	c.log.Add(history.Record{Kind: history.Grant, Op: op, Key: keyOf(lock),
		Token: uint64(lock.Token()), Until: deadline(lock)})
	end := c.watch(op, lock)
	if t.with != nil {
		t.with(op, lock)
	} else {
		c.hold(draw, op, lock, t)
	}
	end()

	c.log.Add(history.Record{Kind: history.Release, Op: op,
		Until: history.Now() + int64(c.TTL)})
	// The context of a turn may have ended. The release must not be given up for that.
	release, end := context.WithTimeout(context.Background(), c.TTL)
	defer end()
	err = lock.Release(release)
	c.log.Add(history.Record{Kind: history.Released, Op: op, Err: class(err)})
}

// rest waits after an attempt that failed, unless it failed because somebody has the key. Maybe no
// server answers just now, and a client that asks all the time would take the machine's time from
// others.
func (c *client) rest(ctx context.Context, draw *rand.Rand, err error) {
	if !errors.Is(err, holdfast.ErrHeld) {
		pause(ctx, between(draw, 0, c.TTL/2))
	}
}

// watch records the loss of the lock, if it hears of one before end is called.
func (c *client) watch(op int, lock *holdfast.Lock) (end func()) {
	told := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-lock.Done():
		case <-stop:
		}
		// If both have happened by now, the loss was told.
		select {
		case <-lock.Done():
			c.log.Add(history.Record{Kind: history.Tell, Op: op, Err: class(lock.Err())})
		default:
		}
	}()
	return func() {
		close(stop)
		<-told
	}
}

// deadline returns that of the lock, on the clock of the history. A pause in here makes it earlier,
// never later.
func deadline(lock *holdfast.Lock) int64 {
	deadline := lock.Deadline()
	return history.Now() + int64(time.Until(deadline))
}

// late does what no program can always avoid: between the look at its lock and the write, something
// else happens.
func (c *client) late(ctx context.Context, orders <-chan string) error {
	lock, err := c.locker.Acquire(ctx, c.Keys[0], holdfast.WithoutRenewal())
	if err != nil {
		return err
	}
	h := c.holding(1, lock, false)
	if !h.write(true) {
		return errors.New("the rightful holder was refused")
	}
	if err := lock.Err(); err != nil {
		return err
	}
	fmt.Println("checked")
	<-orders
	if h.write(false) {
		fmt.Println(history.Accepted)
	} else {
		fmt.Println(history.Refused)
	}
	return nil
}

// class returns the name of an error's kind. A history needs no more.
func class(err error) string {
	var held *holdfast.HeldError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &held):
		return "held"
	case errors.Is(err, holdfast.ErrLost):
		return "lost"
	case errors.Is(err, holdfast.ErrReleased):
		return "released"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, holdfast.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, holdfast.ErrUnknown):
		return "unknown"
	default:
		return err.Error()
	}
}

// between draws a time.
func between(draw *rand.Rand, from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(draw.Int64N(int64(to-from)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
