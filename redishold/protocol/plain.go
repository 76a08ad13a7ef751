package protocol

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// inspectPlainly is Inspect without a script, because an ACL counts every script as a write. The
// commands are sent together but are not one step: something may have changed between two of them.
func (b *Backend) inspectPlainly(ctx context.Context, key string) (driver.Entry, error) {
	keys := KeysOf(key)
	replies, err := b.look(ctx, keys.Slot, optional, []Command{
		{"GETRANGE", keys.Lock, "0", lastByte},
		{"EXISTS", keys.Lock},
		{"PTTL", keys.Lock},
		{"ZRANGEBYSCORE", keys.Readers, "-inf", "+inf", "WITHSCORES"},
		{"ZRANGEBYSCORE", keys.Queue, "0", "+inf"},
		{"HGETALL", keys.Waiters},
		{"TIME"},
		{"PEXPIRETIME", keys.Lock},
		{"PEXPIRETIME", keys.Queue},
		{"PTTL", keys.Queue},
	})
	if IsServerError(err, "WRONGTYPE") {
		return b.inspectHash(ctx, keys, key, err)
	}
	if err != nil {
		return driver.Entry{}, err
	}
	now := serverClock(replies[6], [2]Reply{replies[7], replies[2]},
		[2]Reply{replies[8], replies[9]})
	entry := driver.Entry{Key: key, Waiters: waitersOf(replies[4].List, replies[5].List, now)}
	switch holder := replies[0]; {
	case replies[1].Int == 0:
	case holder.Str == sharedValue:
		entry.Sharers = sharersOf(replies[3].List, now)
	default:
		entry.Holder = party(holder, replies[2])
	}
	return entry, nil
}

// inspectedTogether is how many keys that take more than a brief look InspectBatch looks at at the
// same time.
const inspectedTogether = 16

// InspectBatch describes keys as [Backend.Inspect] does. Of a lock that one has and nobody waits
// for, as most are, three commands tell all there is. These are sent for all keys together. The
// other keys are inspected one by one.
func (b *Backend) InspectBatch(ctx context.Context, keys []string) []driver.Inspected {
	all := make([]driver.Inspected, len(keys))
	var more []int
	if b.transport.Cluster() {
		shards := make(map[string][]int)
		for i, key := range keys {
			shard := b.transport.Shard(Slot(key))
			shards[shard] = append(shards[shard], i)
		}
		for _, places := range shards {
			more = append(more, b.brief(ctx, keys, places, all)...)
		}
	} else {
		places := make([]int, len(keys))
		for i := range places {
			places[i] = i
		}
		more = b.brief(ctx, keys, places, all)
	}
	var looks sync.WaitGroup
	room := make(chan struct{}, inspectedTogether)
	for _, i := range more {
		room <- struct{}{}
		looks.Go(func() {
			all[i].Entry, all[i].Err = b.Inspect(ctx, keys[i])
			<-room
		})
	}
	looks.Wait()
	return all
}

// brief describes those of the keys, all of one server, that have a holder and no queue. It returns
// the places of the others.
func (b *Backend) brief(ctx context.Context, keys []string, places []int,
	all []driver.Inspected) (others []int) {
	if len(places) == 0 {
		return nil
	}
	const each = 3
	commands := make([]Command, 0, each*len(places))
	for _, i := range places {
		k := KeysOf(keys[i])
		commands = append(commands, Command{"GETRANGE", k.Lock, "0", lastByte},
			Command{"PTTL", k.Lock}, Command{"EXISTS", k.Queue})
	}
	replies, err := b.look(ctx, Slot(keys[places[0]]), 0, commands)
	for at, i := range places {
		if err != nil {
			all[i].Err = err
			continue
		}
		value, rest, queue := replies[each*at], replies[each*at+1], replies[each*at+2]
		if value.Kind == String && value.Str != "" && value.Str != sharedValue &&
			rest.Kind == Integer && rest.Int != noKey && queue.Kind == Integer && queue.Int == 0 {
			all[i].Entry = driver.Entry{Key: keys[i], Holder: party(value, rest)}
		} else {
			others = append(others, i)
		}
	}
	return others
}

// optional is the place of the first command of inspectPlainly that an ACL may forbid, or an old
// server does not have.
const optional = 6

// look sends the commands to the server of the slot, and follows a cluster's redirections. It fails
// if one of the first commands did. needed says how many of the commands count as first.
func (b *Backend) look(ctx context.Context, slot uint16, needed int,
	commands []Command) ([]Reply, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	conn, err := b.transport.Conn(ctx, slot)
	if err != nil {
		return nil, err
	}
	for redirects := 0; ; redirects++ {
		replies := make([]Reply, len(commands))
		if err := conn.Do(ctx, commands, replies); err != nil {
			return nil, withoutEffect(err)
		}
		moved, failure := redirect{}, error(nil)
		for _, reply := range replies[:needed] {
			if reply.Kind == Failure {
				moved, failure = parseRedirect(reply.Str), b.failure(conn, reply, false)
				break
			}
		}
		if failure == nil || moved.address == "" || moved.ask || redirects >= maxRedirects {
			return replies, failure
		}
		if conn, err = b.transport.Follow(ctx, slot, moved.address); err != nil {
			return nil, err
		}
	}
}

// serverClock returns the server's clock in milliseconds. It comes from TIME. The category @read of
// an ACL does not include TIME; then it is computed from the end of a key and the time that remains
// to the key. If that fails too, it is this machine's clock.
func serverClock(clock Reply, ends ...[2]Reply) int64 {
	if at := clockOf(clock); !at.IsZero() {
		return at.UnixMilli()
	}
	for _, key := range ends {
		if end, rest := key[0], key[1]; end.Int > 0 && rest.Int > 0 {
			return end.Int - rest.Int
		}
	}
	return time.Now().UnixMilli()
}

// sharersOf reads who shares a lock. Each score is the negative end of a lease, so the longest
// lease comes first there, and last in the result.
func sharersOf(list []Reply, now int64) (sharers []driver.Party) {
	if len(list) > 0 && list[0].Kind == List { // the newer form of the protocol has pairs
		pairs := list
		list = nil
		for _, pair := range pairs {
			list = append(list, pair.List...)
		}
	}
	for i := len(list) - 2; i >= 0; i -= 2 {
		end, _ := strconv.ParseFloat(list[i+1].Str, 64)
		if rest := int64(-end) - now; rest >= 0 {
			sharers = append(sharers, driver.Party{Owner: list[i].Str,
				ExpiresIn: time.Duration(rest) * time.Millisecond})
		}
	}
	return sharers
}

// waitersOf reads who waits, in order. Each waiter's record says until when the waiter is present.
func waitersOf(queue, records []Reply, now int64) (waiters []driver.Party) {
	until := make(map[string]int64, len(records)/2)
	for ; len(records) >= 2; records = records[2:] {
		until[records[0].Str] = leadingNumber(records[1].Str)
	}
	for _, member := range queue {
		if member.Str == "" {
			continue
		}
		owner := member.Str[1:] // behind the mark of its kind
		if rest := until[owner] - now; rest > 0 {
			waiters = append(waiters, driver.Party{Owner: owner,
				ExpiresIn: time.Duration(rest) * time.Millisecond})
		}
	}
	return waiters
}

// leadingNumber returns the number that a text begins with, or 0.
func leadingNumber(text string) int64 {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, _ := strconv.ParseInt(text[:digits], 10, 64)
	return n
}
