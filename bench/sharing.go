package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/stats"
	"github.com/holdfast-go/holdfast/driver"
)

// Drivers of shared locks and of sets of keys.
const (
	oursShared = "holdfast-shared" // shared locks
	oursSet    = "holdfast-set"    // setKeys keys at once
	// readers in a hash with a script each, as Redisson keeps them; without waiting
	readersHash = "readers-hash"
	// a pipeline of SET NX PX for setKeys keys, and one of compare-and-delete for them
	floorSet = "floor-set"
)

// setKeys is how many keys a set has.
const setKeys = 8

// sharing returns the scenarios about shared locks.
func sharing(p plan) []*scenario {
	reading := fmt.Sprintf("one key, %d processes of %d goroutines that read it", p.workers,
		p.readers)
	readers := []metric{{"locks", "/s", 1, 0}, {"commands", "/lock", -1, 4}, {"p50", "us", -1, 1},
		{"p99", "us", -1, 1}, {"max", "us", -1, 0}}
	return []*scenario{{
		name: "shared-latency", title: "uncontended acquire and release of a shared lock",
		drivers: []string{oursShared, ours, readersHash}, floor: ours,
		measure: pairs(load{1, p.warm, p.counted}),
		metrics: []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, {"allocs", "/pair", -1, 1},
			{"commands", "/pair", -1, 1}, {"inner", "/pair", -1, 1}, serverTime, clientTime},
		goals: []goal{ratioGoal("p50 at most 1.2 x the exclusive pair", "p50", oursShared, ours,
			atMost, 1.2)},
	}, {
		name: "readers", title: reading,
		drivers: []string{oursShared, readersHash}, measure: reads(0), metrics: readers,
		goals: []goal{
			valueGoal("at least 1,000,000 read locks per second", "locks", oursShared, atLeast,
				1_000_000),
			valueGoal("at most 0.05 server commands per read lock", "commands", oursShared, atMost,
				0.05),
		},
	}, {
		name: "writers",
		title: fmt.Sprintf("%s, and %d more in each that write; waits are the writers'", reading,
			p.writers),
		drivers: []string{oursShared}, measure: reads(p.writers),
		metrics: append([]metric{{"writes", "/s", 1, 0}, {"jain", "", 1, 3}}, readers...),
		goals: []goal{
			valueGoal("a writer waits at most for two spans of a cohort and a handoff of 5 ms", "max",
				oursShared, atMost,
				(2*holdfast.DefaultCohortSpan+5*time.Millisecond).Seconds()*1e6),
			valueGoal("Jain index over the writers at least 0.95", "jain", oursShared, atLeast,
				0.95),
		},
	}}
}

// sets returns the scenarios about several keys at once, on one server, also with a delay, and over
// five.
func sets(p plan) []*scenario {
	var all []*scenario
	add := func(name, title string, s scenario) {
		s.name, s.title = name, fmt.Sprintf("%d keys at once, uncontended%s", setKeys, title)
		s.measure = pairs(load{1, p.warm, 0})
		s.metrics = []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, clientTime, serverTime}
		s.goals = []goal{ratioGoal("p50 at most 1.5 x one key", "p50", oursSet, ours, atMost, 1.5)}
		all = append(all, &s)
	}
	one := []string{oursSet, ours, floorSet}
	add("set", "", scenario{drivers: one, floor: floorSet})
	for _, d := range p.delays {
		add(fmt.Sprintf("set-%v", d), fmt.Sprintf(", %v more for each round trip", d),
			scenario{drivers: one, floor: floorSet, nodes: 1, proxies: 1, delay: d})
	}
	add("five-set", ", five nodes", scenario{drivers: []string{oursSet, ours}, nodes: 5})
	return all
}

// sharedBy returns an opener of the driver that opener opens, for shared locks.
func sharedBy(opener func(context.Context, site, time.Duration) (*locker, error)) func(
	context.Context, site, time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		l, err := opener(ctx, at, lease)
		if err != nil {
			return nil, err
		}
		l.write = l.acquire
		l.acquire = func(ctx context.Context, key string) (held, error) {
			lock, err := l.ours.Acquire(ctx, key, holdfast.WithShared())
			return held{lock: lock}, err
		}
		return l, nil
	}
}

// setBy returns an opener of the driver that opener opens, for sets of keys.
func setBy(opener func(context.Context, site, time.Duration) (*locker, error)) func(context.Context,
	site, time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		l, err := opener(ctx, at, lease)
		if err != nil {
			return nil, err
		}
		l.acquire = func(ctx context.Context, key string) (held, error) {
			set, err := l.ours.AcquireAll(ctx, setOf(key))
			return held{lock: set}, err
		}
		l.release = func(ctx context.Context, h held) error {
			return h.lock.(*holdfast.LockSet).Release(ctx)
		}
		return l, nil
	}
}

func setOf(key string) []string {
	keys := make([]string, setKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/%d", key, i)
	}
	return keys
}

// openFloorSet is the least that a lock on several keys can do: a round trip to set all, and one to
// delete them.
func openFloorSet(ctx context.Context, at site, lease time.Duration) (*locker, error) {
	client, err := rueidis.NewClient(ourSettings(at.Redis[0]))
	if err != nil {
		return nil, err
	}
	sha, err := client.Do(ctx, client.B().ScriptLoad().Script(deleteMine).Build()).ToString()
	if err != nil {
		client.Close()
		return nil, err
	}
	suffix := driver.OwnerSuffix("")
	all := func(ctx context.Context, key string,
		command func(key string) rueidis.Completed) error {
		commands := make([]rueidis.Completed, 0, setKeys)
		for _, k := range setOf(key) {
			commands = append(commands, command(k))
		}
		var errs []error
		for _, r := range client.DoMulti(ctx, commands...) {
			errs = append(errs, r.Error())
		}
		return errors.Join(errs...)
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			owner := driver.NewOwner(suffix)
			return held{key: key, owner: owner}, all(ctx, key, func(k string) rueidis.Completed {
				return client.B().Set().Key(k).Value(owner).Nx().
					PxMilliseconds(lease.Milliseconds()).Build()
			})
		},
		release: func(ctx context.Context, h held) error {
			return all(ctx, h.key, func(k string) rueidis.Completed {
				return client.B().Evalsha().Sha1(sha).Numkeys(1).Key(k).Arg(h.owner).Build()
			})
		},
		close: client.Close,
	}, nil
}

// The scripts of readersHash. A lock is a hash of its mode and of a count for each reader. Each
// reader has a key of its own that ends with its lease, so that the hash ends with the last one.
const (
	readScript = `local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'read' then return redis.call('pttl', KEYS[1]) end
redis.call('hset', KEYS[1], 'mode', 'read')
local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('set', KEYS[2] .. n, 1, 'px', ARGV[1])
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then
	redis.call('pexpire', KEYS[1], ARGV[1])
end
return nil`
	unreadScript = `local n = redis.call('hincrby', KEYS[1], ARGV[1], -1)
redis.call('del', KEYS[2] .. (n + 1))
if n == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
if redis.call('hlen', KEYS[1]) > 1 then
	local last = -3
	for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
		local count = tonumber(redis.call('hget', KEYS[1], field))
		for i = count or 0, 1, -1 do
			last = math.max(last, redis.call('pttl', ARGV[2] .. field .. ':' .. i))
		end
	end
	if last > 0 then redis.call('pexpire', KEYS[1], last) return 0 end
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[3], 0)
return 1`
)

// openReadersHash keeps readers as Redisson does, with one owner value for each lock.
func openReadersHash(ctx context.Context, at site, lease time.Duration) (*locker, error) {
	client, err := rueidis.NewClient(ourSettings(at.Redis[0]))
	if err != nil {
		return nil, err
	}
	var shas [2]string
	for i, script := range []string{readScript, unreadScript} {
		shas[i], err = client.Do(ctx, client.B().ScriptLoad().Script(script).Build()).ToString()
		if err != nil {
			client.Close()
			return nil, err
		}
	}
	suffix := driver.OwnerSuffix("")
	prefix := func(key string) string { return "{" + key + "}:timeout:" }
	milliseconds := fmt.Sprint(lease.Milliseconds())
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			owner := driver.NewOwner(suffix)
			err := client.Do(ctx, client.B().Evalsha().Sha1(shas[0]).Numkeys(2).
				Key(key, prefix(key)+owner+":").Arg(milliseconds, owner).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return held{key: key, owner: owner}, nil
			}
			if err == nil {
				err = errLost // nobody writes here
			}
			return held{}, err
		},
		release: func(ctx context.Context, h held) error {
			return client.Do(ctx, client.B().Evalsha().Sha1(shas[1]).Numkeys(2).
				Key(h.key, prefix(h.key)+h.owner+":").
				Arg(h.owner, prefix(h.key), "channel:"+h.key).Build()).Error()
		},
		close: client.Close,
	}, nil
}

// reads measures processes that read one key. In each process, writers more goroutines write it, if
// there are any. Then waits and shares are those of the writers.
func reads(writers int) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		goroutines := e.readers + writers
		j := job{Kind: "read", Driver: name, Key: e.key(), Goroutines: goroutines,
			Writers: writers, TTL: ttl}
		return e.compete(ctx, j, e.contention/5, func(b *board, s sample, used info,
			locks, _ float64) error {
			sent, inner, err := e.monitored(func() error { return sleep(ctx, e.contention/5) })
			s["commands"] = perEach(used["total_commands_processed"]*sent/max(1, sent+inner), locks)
			if writers == 0 {
				return err
			}
			writes, shares, _ := b.shared(e.workers, writers)
			total := 0.0
			for _, n := range shares {
				total += n
			}
			s["writes"], s["jain"] = total/e.contention.Seconds(), stats.Jain(shares)
			s.addWaits(&writes)
			return err
		})
	}
}

// read makes goroutines share a key. The first j.Writers of them have it alone. It returns only an
// error.
func read(ctx context.Context, j *job, l *locker, b *board) error {
	turn := func(goroutine int) error {
		begin := time.Now()
		writes := goroutine < j.Writers
		acquire := l.acquire
		if writes {
			acquire = l.write
		}
		h, err := acquire(ctx, j.Key)
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if writes || j.Writers == 0 {
			b.waited(j.Worker, goroutine, time.Since(begin))
		}
		if writes {
			b.enter(j.Worker)
			b.leave()
		} else {
			b.enterReader(j.Worker)
			b.leaveReader(j.Worker)
		}
		if err := l.release(ctx, h); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		return nil
	}
	return inTurns(ctx, j.Goroutines, b, turn)
}
