package holdfast

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// MaxPermits is the largest number of permits that [WithPermits] accepts.
const MaxPermits = 1000

// A permit is a lock on a numbered slot, and a slot is an exclusive key: the semaphore's name and a
// suffix that no other key may have. So a slot has at most one holder, on every backend, and
// nothing has to be counted. The gates and the scouts' key have such suffixes too; see scout.go.
const (
	permitMark = "@permit/"
	gateName   = "gate" // and the number of permits
	scoutName  = "scout"

	// maxPermitSuffix is the length of the longest suffix, that of the gate of MaxPermits.
	maxPermitSuffix = len(permitMark) + len(gateName) + 4
)

// WithPermits makes the key a semaphore: at most n acquisitions hold it at a time. See Semaphores
// in the package documentation. n is 1 to [MaxPermits], and the key of a semaphore has at most
// 1,008 bytes, prefix included. New and Acquire fail with ErrInvalid if n or the key is not
// allowed, or if [WithShared] is given too. [Locker.AcquireAll] refuses permits with ErrInvalid. By
// default a key is a lock.
//
// Use the same n everywhere. While processes use different n, at most the largest n acquisitions
// hold a permit. A semaphore and a lock do not exclude each other, even if they have the same key
// and n is 1.
func WithPermits(n int) AcquireOption {
	return acquireOption(func(c *config) { c.permits, c.semaphore = n, true })
}

// validatePermits checks what belongs to WithPermits.
func (c *config) validatePermits() error {
	switch {
	case !c.semaphore:
		return nil
	case c.permits < 1 || c.permits > MaxPermits:
		return invalid("%d permits: must be 1 to %d", c.permits, MaxPermits)
	case c.shared:
		return invalid("WithPermits(%d) together with WithShared: a permit has one holder; "+
			"leave one of them out", c.permits)
	}
	return nil
}

// Slot returns the number of the permit, from 0 to n-1 for [WithPermits](n), or -1 if the lock is
// not a permit. Two valid permits of a semaphore never have the same number, so it can select one
// of n resources. Tokens rise within a slot: send a guard the slot and the token together.
func (l *Lock) Slot() int { return l.cohort.slot() }

// slot returns the number of the slot, or -1.
func (c *cohort) slot() int {
	if c.terms.permits == 0 {
		return -1
	}
	_, slot, _ := cutPermit(c.key)
	return slot
}

// name returns the full key without the suffix that the kernel has added for a slot or a gate.
func (c *cohort) name() string {
	if c.terms.permits == 0 && !c.terms.gate {
		return c.key
	}
	name, _, _ := cutPermit(c.key)
	return name
}

func slotKey(name string, slot int) string { return name + permitMark + strconv.Itoa(slot) }
func scoutKey(name string) string          { return name + permitMark + scoutName }

// gateKey returns the key of the gate for acquisitions with that number of permits.
func gateKey(name string, permits int) string {
	return name + permitMark + gateName + strconv.Itoa(permits)
}

// cutPermit takes apart the full key of a slot, of a gate, or the scouts' key. For a gate and the
// scouts' key, slot is -1.
func cutPermit(fullKey string) (name string, slot int, ok bool) {
	i := strings.LastIndex(fullKey, permitMark)
	if i < 0 || len(fullKey)-i > maxPermitSuffix {
		return fullKey, -1, false
	}
	name, rest := fullKey[:i], fullKey[i+len(permitMark):]
	permits, isGate := strings.CutPrefix(rest, gateName)
	switch n, err := strconv.ParseUint(permits, 10, 16); {
	case rest == scoutName, isGate && err == nil && n <= MaxPermits:
		return name, -1, true
	case !isGate && err == nil && n < MaxPermits:
		return name, int(n), true
	}
	return fullKey, -1, false
}

// checkReserved refuses the keys of slots, gates and scouts.
func checkReserved(key, fullKey string) error {
	if _, _, reserved := cutPermit(fullKey); reserved {
		return invalid("key %.40q: what ends with %q and a number, %q and a number, or %q is "+
			"reserved for WithPermits; name the key otherwise", key, permitMark, gateName, scoutName)
	}
	return nil
}

// fullSemaphoreKey is fullKey for a semaphore. It leaves room for the suffix of a slot or a gate.
func (l *Locker) fullSemaphoreKey(key string) (string, error) {
	full, err := l.fullKey(key)
	if err == nil && len(full) > driver.MaxKeyLen-maxPermitSuffix {
		return "", invalid("key %.40q... has %d bytes with its prefix: with WithPermits at most %d "+
			"are allowed", key, len(full), driver.MaxKeyLen-maxPermitSuffix)
	}
	return full, err
}
