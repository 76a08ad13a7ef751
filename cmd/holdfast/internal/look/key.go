package look

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// Key is one key as it is shown.
type Key struct {
	Name
	Full    string // as the backend knows it
	Unknown bool   // nobody has said who holds it or waits
	Shared  bool   // Holders share it
	Holders []Party
	Waiters []Party // in order
	Nodes   []Node  // of a set of servers, if they were asked

	asked, answered time.Time // when it was looked at
}

// Party is a holder or a waiter.
type Party struct {
	driver.Owner
	Token   driver.Token  // 0 if not known
	Since   time.Time     // when a holder got the key; zero if not known
	Lease   time.Duration // what remains of the lease or the presence; 0 if not known, or Endless
	Endless bool          // the lease is known to have no end
	Count   int           // how often another library says that it is held; 0 if it does not
	Cut     bool          // Value is only the beginning of a longer one
	Life    Life
	Renewed Renewed
}

// Foreign reports whether another library has written the value.
func (p Party) Foreign() bool { return p.PID == 0 }

// Node is what one server of a set says.
type Node struct {
	Name    string
	Holders []Party
	Waiting int
	Err     error
}

// keyOf describes an entry at the time now.
func keyOf(e driver.Entry, prefix string, now time.Time) Key {
	k := Key{Name: NameOf(e.Key, prefix), Full: e.Key, Shared: len(e.Sharers) > 0}
	k.Holders = holdersOf(e, now)
	for _, w := range e.Waiters {
		k.Waiters = append(k.Waiters, partyOf(w, time.Time{}))
	}
	return k
}

func holdersOf(e driver.Entry, now time.Time) (holders []Party) {
	if e.Holder != (driver.Party{}) {
		holders = append(holders, partyOf(e.Holder, now))
	}
	for _, s := range e.Sharers {
		holders = append(holders, partyOf(s, now))
	}
	return holders
}

func partyOf(p driver.Party, now time.Time) Party {
	o := driver.ParseOwner(p.Owner)
	party := Party{Owner: o, Token: p.Token, Lease: p.ExpiresIn, Endless: p.Endless,
		Count: p.Count, Cut: p.Cut, Life: lifeOf(o)}
	if p.Token > 0 {
		party.Since = Since(p.Token, now)
	}
	return party
}

// nodesOf describes what the nodes of a set say.
func nodesOf(entries []quorum.NodeEntry, now time.Time) []Node {
	nodes := make([]Node, len(entries))
	for i, e := range entries {
		nodes[i] = Node{Name: e.Node, Holders: holdersOf(e.Entry, now),
			Waiting: len(e.Entry.Waiters), Err: e.Err}
	}
	return nodes
}

// Since returns the time that a token stands for. It returns the zero time if that is before 2020
// or more than a second after now.
func Since(token driver.Token, now time.Time) time.Time {
	at := time.UnixMicro(int64(min(uint64(token), math.MaxInt64)))
	if at.Year() < 2020 || at.After(now.Add(time.Second)) {
		return time.Time{}
	}
	return at
}

// size is what the key takes in memory, about, in bytes.
func (k Key) size() int {
	size := len(k.Full)
	for _, parties := range [][]Party{k.Holders, k.Waiters} {
		for _, p := range parties {
			size += len(p.Value) + partyBytes
		}
	}
	return size
}

// Free reports whether nobody holds the key or waits for it.
func (k Key) Free() bool { return len(k.Holders) == 0 && len(k.Waiters) == 0 }

// The form of the output for programs. A text that is not UTF-8 is given in base64 as well.
type (
	jsonKey struct {
		Name    string      `json:"name"`
		Bytes   []byte      `json:"name_base64,omitempty"`
		Key     string      `json:"key"`
		Kind    Kind        `json:"kind"`
		Slot    *int        `json:"slot,omitempty"`
		Unknown bool        `json:"unknown,omitempty"`
		Shared  bool        `json:"shared"`
		Holders []jsonParty `json:"holders"`
		Waiting int         `json:"waiting"`
		Waiters []jsonParty `json:"waiters,omitempty"`
		Nodes   []jsonNode  `json:"nodes,omitempty"`
		Leaks   []string    `json:"leaks,omitempty"`
	}
	jsonParty struct {
		Owner   string       `json:"owner"`
		Bytes   []byte       `json:"owner_base64,omitempty"`
		Cut     bool         `json:"owner_cut,omitempty"`
		Count   int          `json:"count,omitempty"`
		Label   string       `json:"label,omitempty"`
		Host    string       `json:"host,omitempty"`
		PID     int          `json:"pid,omitempty"`
		Process Life         `json:"process,omitempty"`
		Foreign bool         `json:"foreign,omitempty"`
		Token   driver.Token `json:"token,omitempty"`
		Since   *time.Time   `json:"since,omitempty"`
		LeaseMS int64        `json:"lease_ms,omitempty"`
		Endless bool         `json:"endless,omitempty"`
		Renewed Renewed      `json:"renewed,omitempty"`
	}
	jsonNode struct {
		Node    string      `json:"node"`
		Holders []jsonParty `json:"holders"`
		Waiting int         `json:"waiting"`
		Error   string      `json:"error,omitempty"`
	}
)

// JSON returns the key as a line. waiters says whether each waiter is in it; leaks are added. hide
// takes secrets out of an error.
func (k Key) JSON(waiters bool, leaks []Leak, hide func(string) string) []byte {
	j := jsonKey{Name: k.Text, Bytes: BytesOf(k.Text), Key: k.Full, Kind: k.Kind,
		Unknown: k.Unknown, Shared: k.Shared,
		Holders: jsonParties(k.Holders), Waiting: len(k.Waiters)}
	if k.Kind == Permit {
		j.Slot = &k.Slot
	}
	if waiters {
		j.Waiters = jsonParties(k.Waiters)
	}
	for _, n := range k.Nodes {
		node := jsonNode{Node: n.Name, Holders: jsonParties(n.Holders), Waiting: n.Waiting}
		if n.Err != nil {
			node.Error = hide(n.Err.Error())
		}
		j.Nodes = append(j.Nodes, node)
	}
	for _, l := range leaks {
		j.Leaks = append(j.Leaks, string(l.Why))
	}
	return JSONLine(j)
}

func jsonParties(parties []Party) []jsonParty {
	all := make([]jsonParty, 0, len(parties))
	for _, p := range parties {
		j := jsonParty{Owner: p.Value, Bytes: BytesOf(p.Value), Cut: p.Cut, Count: p.Count,
			Label: p.Label, Host: p.Host, PID: p.PID, Process: p.Life, Foreign: p.Foreign(),
			Token: p.Token, LeaseMS: p.Lease.Milliseconds(), Endless: p.Endless,
			Renewed: p.Renewed}
		if !p.Since.IsZero() {
			j.Since = &p.Since
		}
		all = append(all, j)
	}
	return all
}

// BytesOf returns a text that JSON cannot hold as it is, else nil.
func BytesOf(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}
