package board

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/deadlock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

const (
	// most is how many locks are shown at most.
	most = 10_000

	// leastLook is how long a look may take at least, however short the patience is.
	leastLook = time.Minute
)

// errMost ends a list of which enough is known.
var errMost = errors.New("there are more")

// reader looks at the backend. One goroutine uses it.
type reader struct {
	*Options
	last    *state
	checkup checkup
	work    *sync.WaitGroup // what goes on between looks
}

// look looks at all of the backend. What fails is in the state, with what was known before.
func (r *reader) look(ctx context.Context, began time.Time) *state {
	r.checkup.begin(ctx, r.Options, r.work, began)
	s, err := r.list(ctx)
	s.o, s.at = r.Options, time.Now()
	if err == nil {
		s.first, s.good = s.at, s.at
		s.compare(r.last)
	} else {
		s = r.stale(s.at, err)
	}
	s.health = healthOf(ctx, r.Options)
	s.examined = r.checkup.result()
	r.last = s
	return s
}

// stale is what was known before a look that has failed.
func (r *reader) stale(at time.Time, err error) *state {
	s := &state{o: r.Options, at: at, trouble: cut(look.Line(r.Hide(err.Error())))}
	if was := r.last; was != nil {
		s.first, s.good, s.more, s.rows = was.first, was.good, was.more, was.rows
		s.past, s.blind, s.waits = was.past, was.blind, was.waits
	}
	return s
}

// list makes rows of the keys, and the graph of who waits.
func (r *reader) list(ctx context.Context) (*state, error) {
	most := max(leastLook, 4*r.View.Patience)
	late := fmt.Errorf("to look at all locks takes more than %v; with a --timeout over %v it has "+
		"four times as long as that", most, most/4)
	ctx, cancel := context.WithTimeoutCause(ctx, most, late)
	defer cancel()
	s := &state{rows: make(map[string]*row)}
	waits := newWaiting()
	err := r.View.List(ctx, r.Begins, func(keys []look.Key) error {
		room := r.Most - len(s.rows)
		s.more = s.more || len(keys) > room
		keys = keys[:min(room, len(keys))]
		leaks, err := r.View.Leaks(ctx, keys)
		if err != nil {
			return err
		}
		at := time.Now()
		for i, k := range keys {
			waits.add(k)
			one := rowOf(k, leaks[i], at)
			s.rows[one.ID] = one
		}
		if s.more {
			return errMost
		}
		return nil
	})
	if err == errMost {
		err = nil
	}
	if err == nil {
		s.waits, err = waits.graph(ctx, r.View, deadlock.LocalParents())
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it failed because the time was over
	}
	return s, err
}
