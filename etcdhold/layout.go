package etcdhold

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// tokenCounters is how many counters of tokens there are. A key's hash says which one it has, and
// other keys share it. So what remains of unused keys is bounded. All clients of a keyspace have to
// use the same number.
const tokenCounters = 1024

// layout says where in etcd things are. All keys begin with its text.
type layout string

// The kinds of keys that a lock has, in the order of bytes. One range has the claims.
const (
	holderKind    = "h" // and the owner value
	waiterKind    = "w" // and the owner value
	tombstoneKind = "x" // and a lease and the owner value
)

// locks is what the keys of locks begin with.
func (l layout) locks() string { return string(l) + "lock/" }

// base is what all keys of one lock begin with, and no key of another lock.
func (l layout) base(key string) string { return l.locks() + escape(key) + "\x00" }

// escape changes the text so that a zero byte behind it marks its end. The order of bytes stays.
func escape(key string) string { return strings.ReplaceAll(key, "\x00", "\x00\xff") }

// parse takes the key of a lock apart. ok is false for a key that is not ours.
func (l layout) parse(text string) (key, kind, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, l.locks())
	if !ok {
		return "", "", "", false
	}
	for from := 0; ; {
		i := strings.IndexByte(text[from:], 0)
		if i < 0 || from+i+1 >= len(text) {
			return "", "", "", false
		}
		if end := from + i; text[end+1] != 0xff {
			key = strings.ReplaceAll(text[:end], "\x00\xff", "\x00")
			return key, text[end+1 : end+2], text[end+2:], true
		}
		from += i + 2
	}
}

// counter is the key of the largest token that was granted to any key with the same hash.
func (l layout) counter(key string) string {
	h := fnv.New32a()
	h.Write([]byte(key))
	return fmt.Sprintf("%stoken/%03x", l, h.Sum32()%tokenCounters)
}

// names are the keys of one lock.
type names struct {
	base   string
	tokens string // the counter
}

func (l layout) names(key string) names { return names{l.base(key), l.counter(key)} }

func (n names) holder(owner string) string { return n.base + holderKind + owner }
func (n names) waiter(owner string) string { return n.base + waiterKind + owner }

// tombstone is there if a claim has ended while a request for it under that lease may still arrive.
func (n names) tombstone(lease clientv3.LeaseID, owner string) string {
	return fmt.Sprintf("%s%s%016x%s", n.base, tombstoneKind, uint64(lease), owner)
}

// claims are all holders and waiters.
func (n names) claimRange() (from, end string) {
	return n.base + holderKind, n.base + tombstoneKind
}

func (n names) holderRange() (from, end string) {
	return n.base + holderKind, clientv3.GetPrefixRangeEnd(n.base + holderKind)
}

func (n names) waiterRange() (from, end string) {
	return n.base + waiterKind, clientv3.GetPrefixRangeEnd(n.base + waiterKind)
}

// record is the value of a holder or a waiter.
type record struct {
	// Token is a holder's first token, or the smallest one that a waiter wants.
	Token  uint64 `json:"token,omitempty"`
	Block  uint64 `json:"block,omitempty"`  // how many tokens
	Shared bool   `json:"shared,omitempty"` // the claim is not alone
	TTL    int64  `json:"ttl_ms"`
	Ticket uint64 `json:"ticket,omitempty"` // of a waiter; 0: by arrival
	At     uint64 `json:"at,omitempty"`     // the waiter's clock, in microseconds
}

func (r record) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers and truths can always be encoded
	}
	return string(text)
}

// parseRecord reads a value. For a value that is not ours it returns a record that excludes
// everybody else.
func parseRecord(value []byte) record {
	var r record
	if json.Unmarshal(value, &r) != nil {
		return record{}
	}
	return r
}

// digits returns the text of a token of any size. In the order of bytes, a smaller token's text
// comes before it.
func digits(token uint64) string { return fmt.Sprintf("%020d", token) }
