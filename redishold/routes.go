package redishold

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// routes are the channels that a connection is subscribed to. All notices for this Backend come on
// one channel. On a cluster with sharded channels there is one for each slot in which somebody
// waits.
type routes struct {
	whole string                // the one channel's route; empty if there is none
	slots map[uint16]*slotRoute // nil unless the channels are sharded
}

// slotRoute is a subscription to a sharded channel.
type slotRoute struct {
	route string
	used  time.Time
	ready chan struct{} // closed when the server has answered
	err   error
}

const (
	// With more sharded channels than defaultMaxChannels, those that nobody has used for
	// defaultChannelIdle are given up. A waiter uses its channel about once a second.
	defaultMaxChannels = 256
	defaultChannelIdle = time.Minute
)

// subscribe subscribes to the one channel, or prepares for one in each slot.
func (c *conn) subscribe(ctx context.Context) error {
	if c.sharded() {
		c.routes.slots = make(map[uint16]*slotRoute)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	channel := c.node.config.channel(protocol.Slots)
	if err := c.wire.Do(ctx, c.wire.B().Subscribe().Channel(channel).Build()).Error(); err != nil &&
		!rueidis.IsRedisNil(err) {
		if _, ok := serverText(err); ok {
			return nil // not allowed: waiters hear of grants when they ask
		}
		return &driver.Error{Node: c.name, Err: err}
	}
	c.routes.whole = "P" + channel
	return nil
}

// Route returns the channel on which notices for the slot are heard.
func (c *conn) Route(ctx context.Context, slot uint16) string {
	c.mu.Lock()
	if c.routes.slots == nil {
		c.mu.Unlock()
		return c.routes.whole
	}
	r := c.routes.slots[slot]
	if r == nil {
		c.prune()
		r = &slotRoute{route: "S" + c.node.config.channel(slot), ready: make(chan struct{})}
		c.routes.slots[slot] = r
		go c.subscribeSlot(slot, r)
	}
	r.used = time.Now()
	c.mu.Unlock()
	select {
	case <-r.ready:
		if r.err == nil {
			return r.route
		}
	case <-ctx.Done():
	case <-c.dead:
	}
	return ""
}

// subscribeSlot subscribes to a slot's channel. No caller's context bounds it, because others may
// wait for it too.
func (c *conn) subscribeSlot(slot uint16, r *slotRoute) {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	err := c.wire.Do(ctx, c.wire.B().Ssubscribe().Channel(r.route[1:]).Build()).Error()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.err = err; err != nil && c.routes.slots[slot] == r {
		delete(c.routes.slots, slot) // the slot may have moved, and come back
	}
	close(r.ready)
}

// prune gives up channels that nobody uses any more. Called with c.mu held.
func (c *conn) prune() {
	if len(c.routes.slots) < c.node.config.maxChannels {
		return
	}
	for slot, r := range c.routes.slots {
		if time.Since(r.used) > c.node.config.channelIdle {
			delete(c.routes.slots, slot)
			go c.wire.Do(context.Background(),
				c.wire.B().Sunsubscribe().Channel(r.route[1:]).Build())
		}
	}
}

// onMessage hears a notice. It runs on the goroutine that reads all replies and must not block.
func (c *conn) onMessage(message rueidis.PubSubMessage) {
	c.node.config.hear(c.Server(), message.Message)
}

// onInvalidations hears that the server has deleted all its data: somebody told it to, or it has
// become a replica. The server tells this to connections that have tracking on, even if they track
// no keys. The library also calls it when the connection ends. It runs on the goroutine that reads
// all replies, so replies that come later are judged by it.
func (c *conn) onInvalidations(keys []rueidis.RedisMessage) {
	if keys == nil && !c.broken.Load() {
		c.empty()
	}
}

// onSubscription hears that the server has ended a subscription because the slot has moved.
func (c *conn) onSubscription(s rueidis.PubSubSubscription) {
	if s.Kind != "sunsubscribe" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, r := range c.routes.slots {
		if r.route[1:] == s.Channel {
			delete(c.routes.slots, slot)
		}
	}
}
