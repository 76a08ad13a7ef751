package holdfast

import (
	"hash/maphash"

	"github.com/holdfast-go/holdfast/driver"
)

// shard returns the shard of a full key.
func (l *Locker) shard(fullKey string) *shard {
	name, _, _ := cutPermit(fullKey) // all keys of a semaphore are in one shard
	return &l.shards[maphash.String(l.seed, name)%shardCount]
}

// fullKey returns the key with the prefix, as the backend knows it.
func (l *Locker) fullKey(key string) (string, error) {
	switch full := l.config.prefix + key; {
	case key == "":
		return "", invalid("key %q: must have 1 to %d bytes", key,
			driver.MaxKeyLen-len(l.config.prefix))
	case len(full) > driver.MaxKeyLen:
		return "", invalid("key %.40q... has %d bytes with its prefix: at most %d are allowed", key,
			len(full), driver.MaxKeyLen)
	default:
		return full, checkReserved(key, full)
	}
}

// userKey returns the key without the prefix, as the caller knows it.
func (l *Locker) userKey(fullKey string) string { return fullKey[len(l.config.prefix):] }
