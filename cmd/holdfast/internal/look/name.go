package look

import (
	"cmp"
	"strconv"
	"strings"
)

// Kind says what a key is for.
type Kind string

const (
	// Lock is a lock.
	Lock Kind = "lock"

	// Permit is one slot of a semaphore, which one holds at a time.
	Permit Kind = "permit"

	// Gate is where those who want a permit of a semaphore come one by one. Whoever has it waits
	// for a permit.
	Gate Kind = "gate"
)

// permitMark is what the library puts between the name of a semaphore and the number of a slot, or
// gateName. No name of a lock ends so.
const (
	permitMark = "@permit/"
	gateName   = "gate"
	maxPermits = 1000
)

// Name is a key as its user knows it.
type Name struct {
	Text string // without the prefix of the address and without what makes it a permit or a gate
	Kind Kind
	Slot int // of a permit, else -1
}

// NameOf reads a key, which begins with the prefix.
func NameOf(key, prefix string) Name {
	text := strings.TrimPrefix(key, prefix)
	i := strings.LastIndex(text, permitMark)
	if i < 0 {
		return Name{text, Lock, -1}
	}
	rest := text[i+len(permitMark):]
	if rest == gateName {
		return Name{text[:i], Gate, -1}
	}
	// As the library writes it: 07 is no slot.
	if n, err := strconv.Atoi(rest); err == nil && 0 <= n && n < maxPermits &&
		strconv.Itoa(n) == rest {
		return Name{text[:i], Permit, n}
	}
	return Name{text, Lock, -1}
}

// String returns the name in printable text.
func (n Name) String() string {
	switch n.Kind {
	case Permit:
		return Shown(n.Text) + ", permit " + strconv.Itoa(n.Slot)
	case Gate:
		return Shown(n.Text) + ", gate"
	default:
		return Shown(n.Text)
	}
}

// compare orders names; a lock comes before the gate and the permits of the same name.
func (n Name) compare(other Name) int {
	return cmp.Or(strings.Compare(n.Text, other.Text), cmp.Compare(n.rank(), other.rank()))
}

func (n Name) rank() int {
	switch n.Kind {
	case Lock:
		return -2
	case Gate:
		return -1
	default:
		return n.Slot
	}
}
