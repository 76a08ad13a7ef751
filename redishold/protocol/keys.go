package protocol

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The names of everything that is stored beside the lock keys, and of the channels that notices
// travel on. All of them begin alike, so that an ACL can name them with one pattern for keys and
// one for channels.
const (
	// Namespace begins every derived key and every channel.
	Namespace = "holdfast:"

	queuePrefix   = Namespace + "q:{"
	waitersPrefix = Namespace + "w:{"
	readersPrefix = Namespace + "r:{"
	fencePrefix   = Namespace + "f:{"
	latePrefix    = Namespace + "d:{"
	probePrefix   = Namespace + "p:{"
	channelPrefix = Namespace + "n:"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// Slot returns the hash slot that a Redis Cluster puts the key into.
func Slot(key string) uint16 {
	// Only the first '{' counts, and only if there is something between it and the next '}'.
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	return crc16(key) % Slots
}

// crc16 is CRC-16/XMODEM, as the cluster specification has it.
func crc16(s string) uint16 {
	var sum uint16
	for i := range len(s) {
		sum = sum<<8 ^ crcTable[byte(sum>>8)^s[i]]
	}
	return sum
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		sum := uint16(i) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
		table[i] = sum
	}
	return table
}()

// tags holds for each slot the smallest number, in base 36, that hashes to it. A derived key must
// be in the lock key's slot. The name alone does not put it there, because it may have braces of
// its own. So a derived key has the tag of the slot before the name. The table is part of the
// protocol: every client must have the same one.
var tags = sync.OnceValue(func() *[Slots]string {
	table := new([Slots]string)
	for n, missing := int64(0), Slots; missing > 0; n++ {
		tag := strconv.FormatInt(n, 36)
		if slot := crc16(tag) % Slots; table[slot] == "" {
			table[slot] = tag
			missing--
		}
	}
	return table
})

// Tag returns a short string that hashes to the slot.
func Tag(slot uint16) string { return tags()[slot] }

// slotNames are the names that all keys of a slot share.
type slotNames struct {
	tag   string
	fence string
}

// sharedNames keeps the names of slots that were used, to save two allocations a call.
var sharedNames [Slots]atomic.Pointer[slotNames]

func namesOf(slot uint16) *slotNames {
	names := sharedNames[slot].Load()
	if names == nil {
		tag := Tag(slot)
		names = &slotNames{tag: tag, fence: fencePrefix + tag + "}"}
		sharedNames[slot].Store(names)
	}
	return names
}

// Keys are the keys that belong to one lock. All of them are in the same slot.
type Keys struct {
	Slot    uint16 // of all of them
	Lock    string // the lock itself: a string, the owner value, or sharedValue
	Queue   string // who waits, in order: a sorted set
	Waiters string // what is to be known about each: a hash
	Readers string // who shares the lock: a sorted set
	Fence   string // the largest token granted in the slot: a sorted set with one member
}

// recentKeys keeps the Keys of locks that were used lately, because a lock that is acquired is soon
// released, and often acquired again. Long names are left out, to bound its size.
var recentKeys [512]atomic.Pointer[Keys]

const longestRecent = 128

var recentSeed = maphash.MakeSeed()

// KeysOf returns the keys of the lock with this key.
func KeysOf(lock string) Keys {
	if len(lock) > longestRecent {
		return makeKeys(lock)
	}
	recent := &recentKeys[maphash.String(recentSeed, lock)%uint64(len(recentKeys))]
	if keys := recent.Load(); keys != nil && keys.Lock == lock {
		return *keys
	}
	keys := makeKeys(lock)
	recent.Store(&keys)
	return keys
}

func makeKeys(lock string) Keys {
	slot := Slot(lock)
	shared := namesOf(slot)
	// One allocation for all.
	all := queuePrefix + shared.tag + "}:" + lock + waitersPrefix + shared.tag + "}:" + lock +
		readersPrefix + shared.tag + "}:" + lock
	third := len(all) / 3
	// The Keys do not contain the caller's string, which may be part of a large one that would be
	// kept too.
	return Keys{Slot: slot, Lock: all[third-len(lock) : third], Queue: all[:third],
		Waiters: all[third : 2*third], Readers: all[2*third:], Fence: shared.fence}
}

// late is the key that remembers which requests of a client about an owner value are late, over a
// Transport that is not ordered.
func (k *Keys) late(client, owner string) string {
	return latePrefix + namesOf(k.Slot).tag + "}:" + client + ":" + owner
}

// lockOf returns the lock key that a queue's name was made from.
func lockOf(queue string) (lock string, ok bool) {
	rest, ok := strings.CutPrefix(queue, queuePrefix)
	if !ok {
		return "", false
	}
	_, lock, ok = strings.Cut(rest, "}:")
	return lock, ok
}

// Reserved reports whether the name is reserved for what is kept beside locks.
func Reserved(key string) bool {
	return strings.HasPrefix(key, Namespace) && (key == setKey || key == memoryKey ||
		strings.HasPrefix(key, queuePrefix) || strings.HasPrefix(key, waitersPrefix) ||
		strings.HasPrefix(key, readersPrefix) || strings.HasPrefix(key, fencePrefix) ||
		strings.HasPrefix(key, latePrefix) || strings.HasPrefix(key, probePrefix))
}

// Channel returns the channel on which the Backend with that id hears of the slot. For Slots it is
// the one channel for all slots, which is not sharded.
func Channel(slot uint16, id string) string {
	if slot == Slots {
		return channelPrefix + id
	}
	return channelPrefix + "{" + Tag(slot) + "}:" + id
}
