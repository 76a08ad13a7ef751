package protocol

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// scanCount is how many keys the server looks at in one step of a scan. It serves nobody else in
// that step.
const scanCount = "500"

const (
	// maxOwner is the longest owner value in bytes. Other programs' values under the same keys may
	// be much longer, so only these first bytes of a value are asked for.
	maxOwner = 1024
	lastByte = "1023"

	// noKey is what PTTL answers for a key that does not exist.
	noKey = -2
)

// Inspect describes one key with its waiters. Tokens are 0: the published layout has no place for
// them. It fails with ErrUnavailable or ErrUnknown if the server does not answer, and ctx bounds
// it.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if b.options.ReadOnly {
		return b.inspectPlainly(ctx, key)
	}
	keys := KeysOf(key)
	command := append(inspectScript().evalsha(nil, "4"), keys.Lock, keys.Queue, keys.Waiters,
		keys.Readers)
	reply, err := b.run(ctx, &call{script: inspectScript(), slot: keys.Slot, command: command})
	if err != nil {
		return driver.Entry{}, err
	}
	if reply.Kind != List || len(reply.List) < 2 || len(reply.List)%2 != 0 {
		return driver.Entry{}, strange("inspect", reply)
	}
	entry := driver.Entry{Key: key, Waiters: parties(reply.List[2:])}
	switch holder := reply.List[0]; {
	case holder.Kind == String:
		entry.Holder = party(holder, reply.List[1])
	case holder.Kind == List && len(holder.List)%2 != 0:
		return driver.Entry{}, strange("inspect", reply)
	case holder.Kind == List:
		entry.Sharers = parties(holder.List)
		slices.Reverse(entry.Sharers) // the longest lease last
	}
	return entry, nil
}

// parties reads owner values, each with what remains to it.
func parties(list []Reply) (all []driver.Party) {
	for ; len(list) > 0; list = list[2:] {
		all = append(all, party(list[0], list[1]))
	}
	return all
}

func party(owner, remaining Reply) driver.Party {
	return driver.Party{Owner: owner.Str,
		ExpiresIn: time.Duration(max(0, remaining.Int)) * time.Millisecond}
}

// List yields every key that is held or waited for and begins with prefix, as [driver.Inspector]
// describes. Every string whose key begins with prefix counts as held, whoever wrote it: that is
// what an acquisition would find. Holder.Owner has at most the first 1024 bytes of the value. List
// scans all keys of the deployment, in small steps. A key that is shared or only waited for takes a
// round trip of its own.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		conns, err := b.transport.All(ctx)
		if err != nil {
			yield(driver.Entry{}, err)
			return
		}
		l := lister{b: b, ctx: ctx, prefix: prefix, seen: make(map[string]bool), yield: yield}
		for _, conn := range conns {
			if !l.held(conn) || !l.waited(conn) {
				return
			}
		}
	}
}

// lister is one iteration of List. Its methods report whether to go on.
type lister struct {
	b      *Backend
	ctx    context.Context
	prefix string
	seen   map[string]bool // a scan may give a key more than once
	yield  func(driver.Entry, error) bool
}

// held yields the keys that are held.
func (l *lister) held(conn Conn) bool {
	return l.scan(conn, globEscape(l.prefix)+"*", "string", func(found []string) bool {
		commands := make([]Command, 0, 2*len(found))
		for _, key := range found {
			commands = append(commands, Command{"GETRANGE", key, "0", lastByte},
				Command{"PTTL", key})
		}
		replies, ok := l.do(conn, commands)
		if !ok {
			return false
		}
		for i, key := range found {
			// A key may be gone since it was found.
			value, remaining := replies[2*i], replies[2*i+1]
			switch {
			case value.Kind != String || remaining.Int == noKey || l.seen[key] || reserved(key):
			case value.Str == sharedValue:
				if !l.inspected(key) {
					return false
				}
			default:
				l.seen[key] = true
				if !l.yield(driver.Entry{Key: key, Holder: party(value, remaining)}, nil) {
					return false
				}
			}
		}
		return true
	})
}

// waited yields the keys that are only waited for.
func (l *lister) waited(conn Conn) bool {
	return l.scan(conn, globEscape(queuePrefix)+"*}:"+globEscape(l.prefix)+"*", "zset",
		func(found []string) bool {
			for _, queue := range found {
				key, ok := lockOf(queue)
				if !ok || !strings.HasPrefix(key, l.prefix) || l.seen[key] {
					continue
				}
				if !l.inspected(key) {
					return false
				}
			}
			return true
		})
}

// inspected yields a key that takes a script to describe, if somebody holds it or waits for it.
func (l *lister) inspected(key string) bool {
	l.seen[key] = true
	entry, err := l.b.Inspect(l.ctx, key)
	if err != nil {
		l.yield(driver.Entry{}, err)
		return false
	}
	if entry.Holder == (driver.Party{}) && len(entry.Sharers) == 0 && len(entry.Waiters) == 0 {
		return true // they are gone, or dead
	}
	entry.Waiters = nil
	return l.yield(entry, nil)
}

// scan calls f with the keys of a server that match the pattern and have the type.
func (l *lister) scan(conn Conn, pattern, kind string, f func(found []string) bool) bool {
	for cursor := "0"; ; {
		replies, ok := l.do(conn,
			[]Command{{"SCAN", cursor, "MATCH", pattern, "COUNT", scanCount, "TYPE", kind}})
		if !ok {
			return false
		}
		page := replies[0]
		if page.Kind != List || len(page.List) != 2 {
			l.yield(driver.Entry{}, strange("SCAN", page))
			return false
		}
		found := make([]string, 0, len(page.List[1].List))
		for _, key := range page.List[1].List {
			found = append(found, key.Str)
		}
		if len(found) > 0 && !f(found) {
			return false
		}
		if cursor = page.List[0].Str; cursor == "0" {
			return true
		}
	}
}

func (l *lister) do(conn Conn, commands []Command) ([]Reply, bool) {
	replies := make([]Reply, len(commands))
	if err := conn.Do(l.ctx, commands, replies); err != nil {
		l.yield(driver.Entry{}, err)
		return nil, false
	}
	for _, reply := range replies {
		// The type of a key may have changed since it was found.
		if reply.Kind != Failure {
			continue
		}
		if err := l.b.failure(conn, reply, false); !IsServerError(err, "WRONGTYPE") {
			l.yield(driver.Entry{}, err)
			return nil, false
		}
	}
	return replies, true
}

var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// globEscape returns a pattern that matches only the string itself.
func globEscape(s string) string { return globEscapes.Replace(s) }
