package board

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

const (
	// mostHolders is how many of those who share a key are in its row: those with the longest
	// leases.
	mostHolders = 4

	// longest is how many characters of other people's text are in a row.
	longest = 160

	// sameEnd is how far apart two looks may put the end of one lease.
	sameEnd = 1500 * time.Millisecond
)

// row is a key in the list. Nobody changes it once it was published.
type row struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Kind    look.Kind `json:"kind"`
	Shared  bool      `json:"shared,omitempty"`
	Held    int       `json:"held"` // how many hold it
	Holders []party   `json:"holders"`
	Waiting int       `json:"waiting"`
	Leaks   []string  `json:"leaks,omitempty"`
}

// party is a holder or a waiter. All its text is printable.
type party struct {
	ID      string    `json:"id"` // of the acquisition
	Who     string    `json:"who,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Life    look.Life `json:"life,omitempty"`
	Foreign bool      `json:"foreign,omitempty"`
	Token   string    `json:"token,omitempty"`
	Since   int64     `json:"since,omitempty"` // when it got the key, if that is known
	Seen    int64     `json:"seen"`            // when the board saw it first
	Ends    int64     `json:"ends,omitempty"`  // of its lease, if that is known
}

// rowOf describes a key that was looked at a moment before at.
func rowOf(k look.Key, leaks []look.Leak, at time.Time) *row {
	r := &row{ID: keyID(k.Full), Name: cut(k.Name.String()), Kind: k.Kind, Shared: k.Shared,
		Held: len(k.Holders), Waiting: len(k.Waiters), Holders: []party{}}
	for _, p := range k.Holders[max(0, len(k.Holders)-mostHolders):] {
		r.Holders = append(r.Holders, partyOf(p, at))
	}
	for _, l := range leaks {
		if text := string(l.Why); !slices.Contains(r.Leaks, text) {
			r.Leaks = append(r.Leaks, text)
		}
	}
	return r
}

func partyOf(p look.Party, at time.Time) party {
	all := party{ID: ownerID(p.Value), PID: p.PID, Life: p.Life, Foreign: p.Foreign(),
		Since: millis(p.Since), Seen: millis(at)}
	switch {
	case p.Foreign():
		all.Who = p.String()
	case p.Label != "":
		all.Who = cut(look.Shown(p.Label))
	}
	if p.Host != "" {
		all.Host = cut(look.Shown(p.Host))
	}
	if p.Token > 0 {
		all.Token = p.Token.String()
	}
	if p.Lease > 0 {
		all.Ends = millis(at.Add(p.Lease))
	}
	return all
}

// follow takes over what the row before knew, and reports whether both are the same. A lease that
// only gets shorter is no change.
func (r *row) follow(before *row) (same bool) {
	for i := range r.Holders {
		p := &r.Holders[i]
		if q := before.holder(p.ID); q != nil {
			p.Seen = q.Seen
			if apart := p.Ends - q.Ends; q.Ends > 0 && p.Ends > 0 &&
				max(apart, -apart) < sameEnd.Milliseconds() {
				p.Ends = q.Ends
			}
		}
	}
	return r.Waiting == before.Waiting && r.Held == before.Held && r.Shared == before.Shared &&
		slices.Equal(r.Holders, before.Holders) && slices.Equal(r.Leaks, before.Leaks)
}

func (r *row) holder(id string) *party {
	for i := range r.Holders {
		if r.Holders[i].ID == id {
			return &r.Holders[i]
		}
	}
	return nil
}

// all reports whether every holder is in the row.
func (r *row) all() bool { return r.Held == len(r.Holders) }

// keyID stands for a key. It can be turned back.
func keyID(full string) string { return base64.RawURLEncoding.EncodeToString([]byte(full)) }

// ownerID stands for an owner value. That may be long, or contain a secret of another program, so
// the ID cannot be turned back.
func ownerID(value string) string {
	sum := sha256.Sum256([]byte(value))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// cut cuts a printable text.
func cut(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(string([]rune(text)[:longest]), "") + "…"
}
