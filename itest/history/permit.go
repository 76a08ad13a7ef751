package history

import (
	"cmp"
	"strconv"
	"strings"
)

// permitMark is between the name of a semaphore and what distinguishes its keys.
const permitMark = "@permit/"

// SlotKey is the key of a permit: each slot of a semaphore is a key of its own.
func SlotKey(semaphore string, slot int) string {
	return semaphore + permitMark + strconv.Itoa(slot)
}

// GateKey returns the key that a process with that number of permits needs first when it waits for
// any permit of the semaphore.
func GateKey(semaphore string, permits int) string {
	return semaphore + permitMark + "gate" + strconv.Itoa(permits)
}

// ScoutKey returns the key by which waiters find out whether others know another number of permits.
func ScoutKey(semaphore string) string { return semaphore + permitMark + "scout" }

// SemaphoreKeys returns all keys of a semaphore of which everybody knows so many permits, or fewer:
// its slots, its gates, and the scouts' key.
func SemaphoreKeys(semaphore string, permits int) (keys []string) {
	for slot := range permits {
		keys = append(keys, SlotKey(semaphore, slot), GateKey(semaphore, slot+1))
	}
	return append(keys, ScoutKey(semaphore))
}

// Concerns reports whether a fault concerns the key. A fault concerns all keys unless it names one.
// A fault of a slot, or of the gate, also concerns the semaphore as a whole, but not the other
// slots.
func (r *Record) Concerns(key string) bool {
	semaphore, _, _ := strings.Cut(r.Key, permitMark)
	return r.Key == "" || r.Key == key || semaphore == key
}

// Lock names what was asked for: a key, or a semaphore, of which Key is the slot that was granted.
func (a *Acquisition) Lock() string { return cmp.Or(a.Semaphore, a.Key) }
