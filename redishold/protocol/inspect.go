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
	// be much longer, so only these first bytes of a value and one more are asked for. The one more
	// shows that a value is too long to be an owner's.
	maxOwner = 1024
	lastByte = "1024"

	// noKey and noEnd are what PTTL answers for a key that does not exist, and for one that does
	// not expire.
	noKey = -2
	noEnd = -1
)

// Inspect describes one key with its waiters. Tokens are 0, because the published layout has no
// place for them. If a value has over 1,024 bytes, it is no owner value: Owner is its beginning,
// and Cut is set. A key that does not expire is Endless: it is held for ever, even by an empty
// value. If the key is a hash that is a lock of Redisson, its holders are shown, each with its
// Count and the TTL of the key. The holders of a read-write lock in the mode "read" are Sharers.
// Inspect fails with ErrUnavailable, also if the key is of another type or another hash, or a key
// beside it is of another type; then it says which key and of which type it is (see
// [IsServerError], with the code WRONGTYPE). ctx bounds it.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	entry, err := b.inspect(ctx, key)
	return entry, b.whichKey(ctx, KeysOf(key), err)
}

func (b *Backend) inspect(ctx context.Context, key string) (driver.Entry, error) {
	if b.options.ReadOnly {
		return b.inspectPlainly(ctx, key)
	}
	keys := KeysOf(key)
	command := append(inspectScript().evalsha(nil, "4"), keys.Lock, keys.Queue, keys.Waiters,
		keys.Readers)
	reply, err := b.run(ctx, &call{script: inspectScript(), slot: keys.Slot, command: command,
		patient: true})
	if err != nil {
		return driver.Entry{}, withoutEffect(err)
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
	case holder.Kind == List && len(holder.List) > 0 && holder.List[1].Kind == String:
		// Sharers have numbers there.
		return hashHolders(key, holder.List, reply.List[1])
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
	return driver.Party{Owner: shortened(owner.Str), Cut: len(owner.Str) > maxOwner,
		ExpiresIn: time.Duration(max(0, remaining.Int)) * time.Millisecond,
		Endless:   remaining.Int == noEnd}
}

// shortened returns the part of a value that is shown.
func shortened(value string) string { return value[:min(len(value), maxOwner)] }

// List yields every key that is held or waited for and begins with prefix, as [driver.Inspector]
// describes. Every string whose key begins with prefix counts as held, whoever wrote it and
// whatever it is, because an acquisition would find the key taken. A hash counts if it is a lock of
// Redisson. Here the holders of such a lock need the ids of Redisson or of Holdfast: another hash
// with numbers in it is no lock. Keys of other types are left out: an acquisition fails there and
// says why. Holder is as [Backend.Inspect] describes it.
//
// List scans all keys of the deployment, in small steps. A server may return a key again when it
// makes its table smaller, mostly soon after the first time. List remembers the keys that somebody
// waits for and the last few thousand keys, so it yields such a key once. The former take some 60
// bytes each and the key itself: 80 MB for a million different keys that are waited for. If a key's
// slot moves to another server meanwhile, List yields the key twice. A key that is shared or only
// waited for takes a round trip of its own. If the connection to the only server breaks, List goes
// on over another one, and fails if two more break at the same place.
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
		l := lister{b: b, ctx: ctx, prefix: prefix, yield: yield}
		if len(conns) == 1 && !b.transport.Cluster() {
			l.run = runOf(conns[0])
		}
		for _, conn := range conns {
			if !l.list(conn) {
				return
			}
		}
	}
}

// lister is one iteration of List. Its methods report whether the iteration goes on.
type lister struct {
	b      *Backend
	ctx    context.Context
	prefix string
	recent recent
	run    string // of the only server; "" if not known
	latest Conn   // in place of one that broke; nil if none did
	yield  func(driver.Entry, error) bool
}

// list yields the keys of one server. It looks for queues first: the keys with one are fewer than
// those that are held, and so few enough to remember.
func (l *lister) list(conn Conn) bool {
	waited, ok := l.waited(conn)
	if !ok || !l.held(conn, waited) || !l.hashes(conn, waited) {
		return false
	}
	for key := range waited {
		if !l.inspected(key) {
			return false
		}
	}
	return true
}

// held yields the keys that are held, and takes them out of those that are waited for.
func (l *lister) held(conn Conn, waited map[string]bool) bool {
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
			case value.Kind != String || remaining.Int == noKey || Reserved(key) ||
				!l.recent.add(key):
			case value.Str == sharedValue:
				delete(waited, key)
				if !l.inspected(key) {
					return false
				}
			default:
				delete(waited, key)
				if !l.yield(driver.Entry{Key: key, Holder: party(value, remaining)}, nil) {
					return false
				}
			}
		}
		return true
	})
}

// waited returns the keys that have a queue.
func (l *lister) waited(conn Conn) (keys map[string]bool, ok bool) {
	keys = make(map[string]bool)
	ok = l.scan(conn, globEscape(queuePrefix)+"*}:"+globEscape(l.prefix)+"*", "zset",
		func(found []string) bool {
			for _, queue := range found {
				if key, ok := lockOf(queue); ok && strings.HasPrefix(key, l.prefix) {
					keys[strings.Clone(key)] = true // and not the name of its queue
				}
			}
			return true
		})
	return keys, ok
}

// inspected yields a key that takes a script to describe, if somebody holds it or waits for it.
func (l *lister) inspected(key string) bool {
	entry, err := l.b.Inspect(l.ctx, key)
	switch {
	case IsServerError(err, "WRONGTYPE"):
		return true // no lock, as held finds
	case err != nil:
		l.yield(driver.Entry{}, err)
		return false
	}
	driver.Answered(l.ctx)
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
	if l.latest != nil {
		conn = l.latest
	}
	replies := make([]Reply, len(commands))
	err := conn.Do(l.ctx, commands, replies)
	for n := 0; n < reconnects && l.mayAgain(err); n++ {
		err = l.again(err, commands, replies)
	}
	if err != nil {
		l.yield(driver.Entry{}, withoutEffect(err))
		return nil, false
	}
	driver.Answered(l.ctx)
	return replies, l.right(conn, replies)
}

// reconnects is how often List tries another connection for a question. With the first one that
// makes 15 seconds, as each gives up a server that says nothing for five.
const reconnects = 2

// mayAgain reports whether a question that has failed may be asked on another connection.
func (l *lister) mayAgain(err error) bool {
	return err != nil && l.ctx.Err() == nil && !driver.Permanent(err) && l.run != ""
}

// again asks on another connection, if it leads to the same run of the only server. Its cursors are
// still good then: a list of a million keys need not begin anew because the server was busy for
// some seconds. It returns why there is still no answer.
func (l *lister) again(before error, commands []Command, replies []Reply) error {
	conns, err := l.b.transport.All(l.ctx)
	switch {
	case err != nil:
		return err
	case len(conns) != 1 || runOf(conns[0]) != l.run:
		l.run = ""
		return before
	}
	l.latest = conns[0]
	return l.latest.Do(l.ctx, commands, replies)
}

// runOf names the server and its run; "" if they are not known.
func runOf(conn Conn) string {
	if s := conn.Server(); s != nil {
		return s.RunID
	}
	return ""
}

// right yields the first failure of the server among the replies.
func (l *lister) right(conn Conn, replies []Reply) bool {
	for _, reply := range replies {
		// The type of a key may have changed since it was found.
		if reply.Kind != Failure {
			continue
		}
		if err := l.b.failure(conn, reply, false); !IsServerError(err, "WRONGTYPE") {
			l.yield(driver.Entry{}, err)
			return false
		}
	}
	return true
}

var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// globEscape returns a pattern that matches only the string itself.
func globEscape(s string) string { return globEscapes.Replace(s) }
