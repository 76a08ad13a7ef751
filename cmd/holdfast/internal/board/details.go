package board

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

const (
	mostDetails   = 4   // keys that are looked at alone at a time
	mostOpened    = 256 // keys that are looked at or wait for it
	mostDescribed = 500 // holders, and waiters, of a key

	// keepDetail is for how long an answer serves all who ask.
	keepDetail = time.Second
)

// detail is all that is known of a key.
type detail struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Key     string     `json:"key"`
	Kind    look.Kind  `json:"kind"`
	Shared  bool       `json:"shared,omitempty"`
	Unknown bool       `json:"unknown,omitempty"`
	Now     int64      `json:"now"`
	Held    int        `json:"held"`
	Holders []holder   `json:"holders"`
	Waiting int        `json:"waiting"`
	Waiters []party    `json:"waiters"`
	Nodes   []nodeSays `json:"nodes"`
	Trouble string     `json:"trouble,omitempty"`
}

// holder is a holder, and what it would mean to free the key.
type holder struct {
	party
	Is   string `json:"is"`
	Will string `json:"will"`
}

// nodeSays is what one server of a set says of a key.
type nodeSays struct {
	Name    string   `json:"name"`
	Trouble string   `json:"trouble,omitempty"` // why it says nothing
	Holders []string `json:"holders"`
	Differs bool     `json:"differs,omitempty"` // from what the set as a whole says
	Waiting int      `json:"waiting,omitempty"`
}

// details looks at single keys, a few at a time, and at each key once for all viewers that ask.
type details struct {
	slots chan struct{}

	mu     sync.Mutex
	opened map[string]*opened
}

// opened is a key that is looked at, or was a moment ago.
type opened struct {
	done chan struct{} // closed when text is there
	text []byte
}

// get returns what ask returns for the key; nil if too many are asked for, or ctx ends.
func (d *details) get(ctx context.Context, id string, ask func(context.Context) []byte) []byte {
	d.mu.Lock()
	o := d.opened[id]
	if o == nil {
		if len(d.opened) >= mostOpened {
			d.mu.Unlock()
			return nil
		}
		if d.opened == nil {
			d.opened = make(map[string]*opened)
		}
		o = &opened{done: make(chan struct{})}
		d.opened[id] = o
		go d.fill(context.WithoutCancel(ctx), o, id, ask)
	}
	d.mu.Unlock()
	select {
	case <-o.done:
		return o.text
	case <-ctx.Done():
		return nil
	}
}

// fill asks even if the viewer that asked first has left, because others may wait for the answer.
func (d *details) fill(ctx context.Context, o *opened, id string,
	ask func(context.Context) []byte) {
	d.slots <- struct{}{}
	o.text = ask(ctx)
	<-d.slots
	close(o.done)
	time.AfterFunc(keepDetail, func() { d.forget(id, o) })
}

// forget has the next request for the key look again.
func (d *details) forget(id string, o *opened) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened[id] == o {
		delete(d.opened, id)
	}
}

// forgetAll is forget for a key that has just changed.
func (d *details) forgetAll(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.opened, id)
}

// lock answers what is known of one key.
func (b *Board) lock(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	name, ok := b.nameOf(id)
	if !ok {
		refuse(w, http.StatusBadRequest, "no such lock can be here")
		return
	}
	text := b.details.get(r.Context(), id, func(ctx context.Context) []byte {
		return look.JSONLine(b.detail(ctx, id, name))
	})
	if text == nil {
		refuse(w, http.StatusServiceUnavailable, "too many locks are asked for at once")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// nameOf returns the name that an ID stands for, without the prefix of the view, if the board shows
// names that begin so.
func (b *Board) nameOf(id string) (name string, ok bool) {
	full, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(full) == 0 || len(full) > driver.MaxKeyLen || keyID(string(full)) != id {
		return "", false
	}
	if !strings.HasPrefix(string(full), b.View.Prefix+b.Begins) {
		return "", false
	}
	return string(full)[len(b.View.Prefix):], true
}

// detail looks at a key.
func (b *Board) detail(ctx context.Context, id, name string) detail {
	k, err := b.View.Inspect(ctx, name)
	now := time.Now()
	d := detail{ID: id, Name: k.Name.String(), Key: look.Shown(k.Full), Kind: k.Kind,
		Shared: k.Shared, Unknown: k.Unknown, Now: millis(now), Held: len(k.Holders),
		Waiting: len(k.Waiters), Holders: []holder{}, Waiters: []party{}, Nodes: []nodeSays{}}
	if err != nil {
		d.Trouble = cut(look.Line(b.Hide(err.Error())))
	}
	for _, p := range k.Holders[:min(len(k.Holders), mostDescribed)] {
		is, will := k.Consequences(p)
		d.Holders = append(d.Holders, holder{partyOf(p, now), is, will})
	}
	for _, p := range k.Waiters[:min(len(k.Waiters), mostDescribed)] {
		d.Waiters = append(d.Waiters, partyOf(p, now))
	}
	for _, n := range k.Nodes {
		d.Nodes = append(d.Nodes, b.nodeSays(k, n))
	}
	return d
}

func (b *Board) nodeSays(k look.Key, n look.Node) nodeSays {
	one := nodeSays{Name: look.Line(b.Hide(n.Name)), Holders: []string{}, Waiting: n.Waiting}
	if n.Err != nil {
		text := strings.TrimPrefix(n.Err.Error(), n.Name+": ")
		one.Trouble = cut(look.Line(b.Hide(text)))
		return one
	}
	for _, p := range n.Holders[:min(len(n.Holders), mostAtKey)] {
		one.Holders = append(one.Holders, cut(p.String()))
		one.Differs = one.Differs || !slices.ContainsFunc(k.Holders, func(h look.Party) bool {
			return h.Value == p.Value
		})
	}
	one.Differs = one.Differs || len(n.Holders) == 0 && len(k.Holders) > 0
	return one
}
