package simulate

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// keyNames are the keys of users: a plan has no more.
var keyNames = [...]string{"k0", "k1", "k2", "k3", "k4", "k5"}

// What the backend stores for a key that is a semaphore: slots, a gate for each number of permits,
// and the scouts' key. Events name them by the index of the key, to which a multiple of keyCount is
// added.
const (
	keyCount   = len(keyNames)
	permitMark = "@permit/"
	gateName   = "gate" // and the number of permits
	scoutName  = "scout"

	mostSlots  = 10
	scoutIndex = keyCount
	slotIndex  = 2 * keyCount
	gateIndex  = slotIndex + mostSlots*keyCount

	otherKey = 255 // a key that nobody was told to acquire, or several
)

// keyIndex finds a key of a user, or one that belongs to a semaphore, by its name at the backend.
func keyIndex(name string) int {
	name, part, _ := strings.Cut(name, permitMark)
	i := slices.Index(keyNames[:], name)
	number, isGate := strings.CutPrefix(part, gateName)
	n, err := strconv.Atoi(number)
	switch {
	case i < 0:
		return otherKey
	case part == "":
		return i
	case part == scoutName:
		return i + scoutIndex
	case err != nil || n >= mostSlots:
		return otherKey
	case isGate:
		return i + gateIndex + n*keyCount
	default:
		return i + slotIndex + n*keyCount
	}
}

// keyText is the name of a key for the report of a history.
func keyText(index int) string {
	if index == otherKey {
		return "other keys"
	}
	name := keyNames[index%keyCount]
	switch {
	case index < scoutIndex:
		return name
	case index < slotIndex:
		return name + permitMark + scoutName
	case index < gateIndex:
		return name + permitMark + strconv.Itoa((index-slotIndex)/keyCount)
	default:
		return name + permitMark + gateName + strconv.Itoa((index-gateIndex)/keyCount)
	}
}

// newKey makes what the checker knows of a user's key: a lock, or a semaphore if it has permits.
func newKey(index, permits int) *keyState {
	k := newStored(index, new(sync.Mutex))
	if permits == 0 {
		return k
	}
	k.orders = append(k.orders, newStored(index+scoutIndex, new(sync.Mutex)))
	for n := range permits {
		k.orders = append(k.orders, newStored(index+gateIndex+(n+1)*keyCount, new(sync.Mutex)))
	}
	for slot := range permits {
		s := newStored(index+slotIndex+slot*keyCount, k.mu)
		s.of = k
		k.slots = append(k.slots, s)
	}
	return k
}

func newStored(index int, mu *sync.Mutex) *keyState {
	return &keyState{name: keyText(index), index: index, mu: mu, seen: make(map[uint64]bool)}
}

// held returns the keys that are held for this one: itself, or its slots.
func (k *keyState) held() []*keyState {
	if k.slots == nil {
		return []*keyState{k}
	}
	return k.slots
}

// stored returns all keys that the backend may have.
func (h *history) stored() (all []*keyState) {
	for _, k := range h.keyed {
		all = append(append(all, k.held()...), k.orders...)
	}
	return all
}

// storedBy returns what the checker knows of a key with that name at the backend, or nil.
func (h *history) storedBy(name string) *keyState {
	for _, k := range h.stored() {
		if k.name == name {
			return k
		}
	}
	return nil
}

// user returns the user's key to which a name at the backend belongs, or nil.
func (h *history) user(name string) *keyState {
	i := keyIndex(name)
	if i == otherKey || i%keyCount >= len(h.keyed) {
		return nil
	}
	return h.keyed[i%keyCount]
}

// slot returns what the checker knows of a slot with that name at the backend, or nil.
func (h *history) slot(name string) *keyState {
	i := keyIndex(name)
	if i == otherKey || i < slotIndex || i >= gateIndex {
		return nil
	}
	k, slot := h.keyed[i%keyCount], (i-slotIndex)/keyCount
	if slot >= len(k.slots) {
		return nil
	}
	return k.slots[slot]
}
