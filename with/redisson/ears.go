package withredisson

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// patience is how long a claim counts as waiting after it last asked. The kernel asks once a second
// at least, and does not say when it gives up a claim that was never queued.
const patience = 10 * time.Second

// ears hear of locks that are released, on the channels of Redisson, for claims that wait.
type ears struct {
	client   *redis.Client
	patience time.Duration
	ctx      context.Context // until close
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	change   chan struct{} // has room for one

	mu          sync.Mutex
	closed      bool
	running     bool
	waiting     map[string]map[waiter]time.Time // by channel: when the claim last asked
	subscribed  map[string]bool                 // channels
	subscribers []*subscriber                   // replaced, never changed in place
}

// waiter is a claim that waits. Keys with and without braces may have the same channel.
type waiter struct{ key, owner string }

// subscriber is one function given to Notify.
type subscriber struct {
	mu sync.Mutex
	f  func(driver.Notice) // nil once stopped
}

func newEars(client *redis.Client) *ears {
	if o := client.Options(); o.ReadTimeout <= 0 || o.WriteTimeout <= 0 {
		client = client.WithTimeout(protocol.LibraryPatience) // else a goroutine may hang for ever
	}
	e := &ears{client: client, patience: patience, change: make(chan struct{}, 1),
		waiting: make(map[string]map[waiter]time.Time), subscribed: make(map[string]bool)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

func (e *ears) notify(f func(driver.Notice)) (stop func()) {
	s := &subscriber{f: f}
	e.mu.Lock()
	e.subscribers = append(e.subscribers[:len(e.subscribers):len(e.subscribers)], s)
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		var rest []*subscriber
		for _, other := range e.subscribers {
			if other != s {
				rest = append(rest, other)
			}
		}
		e.subscribers = rest
		e.mu.Unlock()
		s.mu.Lock()
		s.f = nil
		s.mu.Unlock()
	}
}

// freed tells everybody who waits for the key that it may be free.
func (e *ears) freed(key string) {
	e.mu.Lock()
	to := e.subscribers
	e.mu.Unlock()
	for _, s := range to {
		s.mu.Lock()
		if s.f != nil {
			s.f(driver.Notice{Kind: driver.Freed, Key: key})
		}
		s.mu.Unlock()
	}
}

// listen has the claim hear of the key, if anybody listens to notices.
func (e *ears) listen(key, owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.subscribers) == 0 {
		return
	}
	channel := channelOf(key)
	if e.waiting[channel] == nil {
		e.waiting[channel] = make(map[waiter]time.Time)
	}
	e.waiting[channel][waiter{key, owner}] = time.Now()
	if !e.running {
		e.running = true
		e.ended.Go(e.run)
	}
	e.changed()
}

// leave ends that. The caller has the lock, or gives up.
func (e *ears) leave(key, owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	channel, w := channelOf(key), waiter{key, owner}
	if _, ok := e.waiting[channel][w]; ok {
		e.drop(channel, w)
		e.changed()
	}
}

// own returns how many of the listeners for the key are of this Backend.
func (e *ears) own(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subscribed[channelOf(key)] {
		return 1
	}
	return 0
}

// forgetOld drops claims that have not asked for long.
func (e *ears) forgetOld() {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for channel, all := range e.waiting {
		for w, asked := range all {
			if now.Sub(asked) > e.patience {
				e.drop(channel, w)
			}
		}
	}
}

// drop is called with mu held.
func (e *ears) drop(channel string, w waiter) {
	if delete(e.waiting[channel], w); len(e.waiting[channel]) == 0 {
		delete(e.waiting, channel)
	}
}

func (e *ears) changed() {
	select {
	case e.change <- struct{}{}:
	default:
	}
}

// run keeps the channels subscribed of the keys that are waited for. The library connects again
// when the connection breaks, and subscribes to all of them.
func (e *ears) run() {
	subscription := e.client.Subscribe(e.ctx)
	defer func() { go subscription.Close() }() // waits for what the library does, as follow does
	sweep := time.NewTicker(e.patience)
	defer sweep.Stop()
	var heard <-chan any
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-sweep.C:
			e.forgetOld()
			e.follow(subscription)
		case <-e.change:
			e.follow(subscription)
			if heard == nil {
				heard = subscription.ChannelWithSubscriptions()
			}
		case event, ok := <-heard:
			if !ok {
				return // the client is closed
			}
			e.heard(event)
		}
	}
}

// heard tells what an event of the library means.
func (e *ears) heard(event any) {
	channel := ""
	switch event := event.(type) {
	case *redis.Message:
		channel = event.Channel
	case *redis.Subscription:
		// A release before this, also while the connection was broken, was not heard.
		if event.Kind == "subscribe" {
			channel = event.Channel
		}
	}
	keys := make(map[string]bool)
	e.mu.Lock()
	for w := range e.waiting[channel] {
		keys[w.key] = true
	}
	e.mu.Unlock()
	for key := range keys {
		e.freed(key)
	}
}

// follow subscribes to the channels that are waited for, and to no others. It tells no error: the
// library tries again by itself, and until then waiters ask once a second.
func (e *ears) follow(subscription *redis.PubSub) {
	var come, gone []string
	e.mu.Lock()
	for channel := range e.waiting {
		if !e.subscribed[channel] {
			come = append(come, channel)
			e.subscribed[channel] = true
		}
	}
	for channel := range e.subscribed {
		if e.waiting[channel] == nil {
			gone = append(gone, channel)
			delete(e.subscribed, channel)
		}
	}
	e.mu.Unlock()
	if len(come)+len(gone) == 0 {
		return
	}
	done := make(chan struct{})
	go func() { // the library ignores ctx while a server hangs
		defer close(done)
		if len(come) > 0 {
			subscription.Subscribe(e.ctx, come...)
		}
		if len(gone) > 0 {
			subscription.Unsubscribe(e.ctx, gone...)
		}
	}()
	select {
	case <-done:
	case <-e.ctx.Done():
	}
}

// close ends the subscription. The library may take a while for its connection.
func (e *ears) close() {
	e.mu.Lock()
	e.closed = true
	e.subscribers = nil
	e.mu.Unlock()
	e.cancel()
	e.ended.Wait()
}
