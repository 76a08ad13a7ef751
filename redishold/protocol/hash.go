package protocol

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A lock of Redisson is a hash with a field for each holder. The field's value is how often that
// holder has the lock. The hash of a read-write lock also has the field mode, "read" or "write". A
// writer that also reads has two fields: "id:thread:write" and "id:thread".
const (
	modeField  = "mode"
	writerMark = ":write"
)

const (
	// maxHolders and maxHash bound what is read of a hash: one with more fields or more bytes is no
	// lock.
	maxHolders = 100
	maxHash    = 1 << 20
)

// thread matches the field of a holder of Redisson: the id of a client, and a thread.
var thread = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^:]+:[0-9]+(?:` + writerMark + `)?$`)
})

// redisson matches the same more strictly: the id of a client is a UUID.
var redisson = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9]+(?:` +
		writerMark + `)?$`)
})

// errOtherType is what an inspection fails with if a key is a hash and no lock.
const errOtherType = "WRONGTYPE the key is a hash, and no lock of Redisson"

// hashHolders returns an entry with the holders that the fields and values of a hash show.
// remaining is the TTL of its key. It fails if the hash is no lock of Redisson.
func hashHolders(key string, fields []Reply, remaining Reply) (driver.Entry, error) {
	entry, shared := driver.Entry{Key: key}, false
	var holders []driver.Party
	for ; len(fields) >= 2; fields = fields[2:] {
		name, value := fields[0].Str, fields[1].Str
		if name == modeField {
			shared = value == "read"
			continue
		}
		count, err := strconv.Atoi(value)
		if err != nil || count <= 0 || count > math.MaxInt32 || len(name) > maxOwner ||
			!thread().MatchString(name) && driver.ParseOwner(name).PID == 0 {
			return driver.Entry{}, ServerFailure("", errOtherType, false)
		}
		holder := party(fields[0], remaining)
		holder.Count = count
		holders = append(holders, holder)
	}
	slices.SortFunc(holders, func(a, b driver.Party) int {
		return strings.Compare(a.Owner, b.Owner)
	})
	writer := slices.IndexFunc(holders, func(p driver.Party) bool {
		return strings.HasSuffix(p.Owner, writerMark)
	})
	switch {
	case len(holders) == 0:
		return driver.Entry{}, ServerFailure("", errOtherType, false)
	case shared:
		entry.Sharers = holders
	default:
		entry.Holder = holders[max(writer, 0)]
	}
	return entry, nil
}

// inspectHash describes a key that is no string, with commands that only read. It fails with wrong
// if the key is no hash either, or a hash that is too large for a lock.
func (b *Backend) inspectHash(ctx context.Context, keys Keys, key string,
	wrong error) (driver.Entry, error) {
	sizes, err := b.look(ctx, keys.Slot, 1, []Command{
		{"HLEN", keys.Lock},
		{"MEMORY", "USAGE", keys.Lock}, // not all servers have that
	})
	switch {
	case IsServerError(err, "WRONGTYPE"):
		return driver.Entry{}, wrong
	case err != nil:
		return driver.Entry{}, err
	case sizes[0].Int > maxHolders || sizes[1].Int > maxHash:
		return driver.Entry{}, wrong
	}
	replies, err := b.look(ctx, keys.Slot, 2, []Command{
		{"HGETALL", keys.Lock},
		{"PTTL", keys.Lock},
	})
	if err != nil {
		return driver.Entry{}, err
	}
	if len(replies[0].List) == 0 {
		return driver.Entry{Key: key}, nil // it was released meanwhile
	}
	return hashHolders(key, replies[0].List, replies[1])
}

// hashes yields the keys that are hashes and locks of Redisson. It asks for the sizes first, and of
// those that are small enough for the fields, so many at a time that the answers have a megabyte.
func (l *lister) hashes(conn Conn, waited map[string]bool) bool {
	return l.scan(conn, globEscape(l.prefix)+"*", "hash", func(found []string) bool {
		found = slices.DeleteFunc(found, func(key string) bool {
			return Reserved(key) || !l.recent.add(key)
		})
		small, ok := l.small(conn, found)
		for ok && len(small) > 0 {
			bytes := int64(0)
			n := slices.IndexFunc(small, func(h sized) bool {
				bytes += h.bytes
				return bytes > maxHash
			})
			if n < 0 {
				n = len(small)
			}
			ok = l.read(conn, small[:max(n, 1)], waited)
			small = small[max(n, 1):]
		}
		return ok
	})
}

// sized is a hash that may be a lock.
type sized struct {
	key   string
	bytes int64
}

// small returns the hashes that are not too large for a lock. There are none for a user who may not
// read hashes.
func (l *lister) small(conn Conn, keys []string) (hashes []sized, ok bool) {
	commands := make([]Command, 0, 2*len(keys))
	for _, key := range keys {
		commands = append(commands, Command{"HLEN", key})
	}
	for _, key := range keys {
		commands = append(commands, Command{"MEMORY", "USAGE", key}) // not all servers have that
	}
	if len(keys) == 0 {
		return nil, true
	}
	replies := make([]Reply, len(commands))
	if err := conn.Do(l.ctx, commands, replies); err != nil {
		l.yield(driver.Entry{}, err)
		return nil, false
	}
	lengths, sizes := replies[:len(keys)], replies[len(keys):]
	if lengths[0].Kind == Failure &&
		IsServerError(l.b.failure(conn, lengths[0], false), "NOPERM") {
		return nil, true
	}
	for i, key := range keys {
		size := sizes[i].Int
		if sizes[i].Kind != Integer {
			size = maxHash / 4
		}
		if n := lengths[i].Int; n > 0 && n <= maxHolders && size <= maxHash {
			hashes = append(hashes, sized{key, size})
		}
	}
	return hashes, l.right(conn, lengths)
}

// read yields those of the hashes that are locks, and takes them out of the keys that are waited
// for.
func (l *lister) read(conn Conn, hashes []sized, waited map[string]bool) bool {
	commands := make([]Command, 0, 2*len(hashes))
	for _, h := range hashes {
		commands = append(commands, Command{"HGETALL", h.key}, Command{"PTTL", h.key})
	}
	replies := make([]Reply, len(commands))
	if err := conn.Do(l.ctx, commands, replies); err != nil {
		l.yield(driver.Entry{}, err)
		return false
	}
	if replies[0].Kind == Failure &&
		IsServerError(l.b.failure(conn, replies[0], false), "NOPERM") {
		return true
	}
	if !l.right(conn, replies) {
		return false
	}
	for i, h := range hashes {
		entry, err := hashHolders(h.key, replies[2*i].List, replies[2*i+1])
		if err != nil || !byRedisson(entry) {
			continue
		}
		delete(waited, h.key)
		if !l.yield(entry, nil) {
			return false
		}
	}
	return true
}

// byRedisson reports whether all holders are clients of Redisson, or ours.
func byRedisson(e driver.Entry) bool {
	return !slices.ContainsFunc(append(e.Sharers, e.Holder), func(p driver.Party) bool {
		return p.Owner != "" && !redisson().MatchString(p.Owner) &&
			driver.ParseOwner(p.Owner).PID == 0
	})
}
