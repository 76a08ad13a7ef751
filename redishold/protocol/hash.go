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
