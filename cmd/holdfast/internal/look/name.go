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

	// Gate is the key whose holder waits for a permit of a semaphore, one process at a time. There
	// is one for each number of permits that processes use.
	Gate Kind = "gate"

	// Scout is a key that the holder of one of the gates has. With it, holders of gates find out
	// that others use another number of permits.
	Scout Kind = "scout"
)

// permitMark is what the library puts between the name of a semaphore and the number of a slot;
// gateName and a number of permits; or scoutName. No name of a lock ends so.
const (
	permitMark = "@permit/"
	gateName   = "gate"
	scoutName  = "scout"
	maxPermits = 1000
)

// Name is a key as its user knows it.
type Name struct {
	Text    string // without the prefix of the address and without what tells its kind
	Kind    Kind
	Slot    int // of a permit, else -1
	Permits int // of a gate, else 0
}

// NameOf reads a key, which begins with the prefix.
func NameOf(key, prefix string) Name {
	text := strings.TrimPrefix(key, prefix)
	i := strings.LastIndex(text, permitMark)
	if i < 0 {
		return Name{text, Lock, -1, 0}
	}
	rest := text[i+len(permitMark):]
	number, gate := strings.CutPrefix(rest, gateName)
	n, err := strconv.Atoi(number)
	written := err == nil && strconv.Itoa(n) == number // by the library: 07 is no slot
	switch {
	case rest == scoutName:
		return Name{text[:i], Scout, -1, 0}
	case gate && written && 1 <= n && n <= maxPermits:
		return Name{text[:i], Gate, -1, n}
	case !gate && written && 0 <= n && n < maxPermits:
		return Name{text[:i], Permit, n, 0}
	}
	return Name{text, Lock, -1, 0}
}

// String returns the name in printable text.
func (n Name) String() string {
	switch n.Kind {
	case Permit:
		return Shown(n.Text) + ", permit " + strconv.Itoa(n.Slot)
	case Gate:
		return Shown(n.Text) + ", gate of " + strconv.Itoa(n.Permits)
	case Scout:
		return Shown(n.Text) + ", scouts"
	default:
		return Shown(n.Text)
	}
}

// Compare orders names; a lock comes before the gates, the scouts' key and the permits of the same
// name.
func (n Name) Compare(other Name) int {
	return cmp.Or(strings.Compare(n.Text, other.Text), cmp.Compare(n.rank(), other.rank()))
}

func (n Name) rank() int {
	switch n.Kind {
	case Lock:
		return -maxPermits - 2
	case Gate:
		return n.Permits - maxPermits - 2
	case Scout:
		return -1
	default:
		return n.Slot
	}
}
