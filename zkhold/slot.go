package zkhold

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// slots is how many nodes keep the locks. A key's hash says in which it is. So what ZooKeeper keeps
// of unused keys is bounded, and there is no node to clean away. All clients of a root have to use
// the same number.
const slots = 1024

// maxRecord bounds the record of a slot in which a claim may still queue. ZooKeeper takes a
// megabyte, and the tokens and holders need room as well.
const maxRecord = 512 << 10

// maxData bounds a record that gets another party.
const maxData = 900 << 10

// slotOf is the name of the node that keeps the key.
func (b *Backend) slotOf(key string) string {
	h := fnv.New32a()
	h.Write([]byte(key))
	return fmt.Sprintf("%03x", h.Sum32()%b.slots)
}

// record is the data of a slot.
type record struct {
	Tokens uint64           `json:"tokens,omitempty"` // the largest one granted to any key
	Locks  map[string]*lock `json:"locks,omitempty"`  // by the escaped key
}

// lock is what is known of one key.
type lock struct {
	Holders []*party `json:"holders,omitempty"`
	Waiters []*party `json:"waiters,omitempty"` // in the order in which they are served
	Given   uint64   `json:"given,omitempty"`   // the last ticket that was given by arrival
}

// party is a holder or a waiter.
type party struct {
	Owner string `json:"owner"` // escaped
	// Node is the name of the ephemeral node below the slot that says that the party lives.
	Node string `json:"node"`
	// Token is a holder's first token, or the smallest one that a waiter wants.
	Token  uint64 `json:"token,omitempty"`
	Block  uint64 `json:"block,omitempty"`  // how many tokens
	Shared bool   `json:"shared,omitempty"` // the claim is not alone
	TTL    int64  `json:"ttl_ms"`
	Ticket uint64 `json:"ticket,omitempty"` // of a waiter
}

// parties counts those who hold or wait.
func (r *record) parties() (n int) {
	for _, l := range r.Locks {
		n += len(l.Holders) + len(l.Waiters)
	}
	return n
}

// grant is the data of the node of a waiter who was let in.
type grant struct {
	Token uint64 `json:"token"`
	Block uint64 `json:"block,omitempty"`
}

// encode returns the data of v, which can always be encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, truths and valid text can always be encoded
	}
	return data
}

// decode reads the data of a slot. A new slot has none.
func decode(data []byte) (record, error) {
	r := record{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &r); err != nil {
			return record{}, errors.New("it is no record of locks")
		}
	}
	for _, l := range r.Locks {
		if l == nil || slices.Contains(l.Holders, nil) || slices.Contains(l.Waiters, nil) {
			return record{}, errors.New("it is no record of locks")
		}
	}
	if r.Locks == nil {
		r.Locks = make(map[string]*lock)
	}
	return r, nil
}

// escape makes valid and readable text of any bytes.
func escape(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r == '%' {
			fmt.Fprintf(&b, "%%%02x", s[i])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// unescape undoes escape. What escape did not make stays as it is.
func unescape(s string) string {
	if text, err := url.PathUnescape(s); err == nil {
		return text
	}
	return s
}

// compare says whether the waiter comes before one with that ticket and owner value.
func (p *party) compare(ticket uint64, owner string) int {
	return cmp.Or(cmp.Compare(p.Ticket, ticket), cmp.Compare(unescape(p.Owner), owner))
}

// find returns where the owner is, or -1.
func find(parties []*party, owner string) int {
	owner = escape(owner)
	return slices.IndexFunc(parties, func(p *party) bool { return p.Owner == owner })
}

// byLease sorts holders as they are shown: the longest lease last, as far as it is known.
func byLease(holders []*party) []*party {
	sorted := slices.Clone(holders)
	slices.SortStableFunc(sorted, func(a, b *party) int { return cmp.Compare(a.TTL, b.TTL) })
	return sorted
}

// slot is what ZooKeeper has of a slot.
type slot struct {
	path    string
	version int32
	size    int
	// live has the names of the nodes below it, read after the record; nil: one for each party.
	live map[string]bool
	record
}
