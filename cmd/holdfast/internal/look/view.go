package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

const (
	// batch is how many keys List has in memory, and puts in order, at a time.
	batch = 4096

	// together is how many questions about keys are asked at the same time.
	together = 8

	// severalKeys is how many keys are in one question to a backend that takes several.
	severalKeys = 64

	// batchBytes is about how much memory a batch may take. If values of another library are very
	// long, or there are very many waiters, a batch has fewer keys.
	batchBytes = 16 << 20

	// partyBytes is what a party takes beside its value, about.
	partyBytes = 256
)

// View looks at the keys of a backend.
type View struct {
	Backend  driver.Inspector
	Prefix   string        // of all keys; names are shown without it
	Patience time.Duration // how long the backend may say nothing

	// Again is after how long List looks at each batch once more, and notes which leases were
	// renewed meanwhile; 0 means that it does not.
	Again time.Duration

	// Batch is how many keys List has in memory at a time; 0 means as many as usual.
	Batch int

	calls calls
	silence
}

// SilentError says that the backend has not answered in time.
type SilentError struct{ Patience time.Duration }

// Error says how long it was waited for.
func (e *SilentError) Error() string { return fmt.Sprintf("no answer within %v", e.Patience) }

// because adds why there was no answer, if that says more than that the time was over.
func (e *SilentError) because(err error) error {
	cause := err
	if said := (*driver.Error)(nil); errors.As(err, &said) {
		cause = said.Err
	}
	if cause == context.DeadlineExceeded || cause == context.Canceled {
		return e
	}
	return fmt.Errorf("%w: %w", e, err)
}

// List calls show with the keys whose names begin with prefix, each with all of its waiters. It
// passes as many at a time as fit into a batch. Each batch is in order, but one batch is not in
// order with the next. List returns the first error of the backend or of show, after it has shown
// the keys that were listed before.
func (v *View) List(ctx context.Context, prefix string, show func([]Key) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	size := v.Batch
	if size == 0 {
		size = batch
	}
	if err := v.calls.begin(v); err != nil {
		return err
	}
	listed := v.listed(ctx, v.Prefix+prefix)
	defer listed.cancel()
	for names := make([]string, 0, min(size, 64)); ; names = names[:0] {
		more, failure := true, error(nil)
		for more && len(names) < size && failure == nil {
			var l listing
			if l, more, failure = v.next(ctx, listed); more && failure == nil {
				failure = l.err
				if failure == nil {
					names = append(names, l.key)
				}
			}
		}
		if err := v.showRest(ctx, names, show, failure); err != nil {
			return cmp.Or(failure, err)
		}
		if failure != nil || !more {
			return failure
		}
	}
}

// showRest shows the keys that were listed last. If the list has ended because the backend was
// silent, they have only a moment: most likely it does not describe them either.
func (v *View) showRest(ctx context.Context, names []string, show func([]Key) error,
	failure error) error {
	if silent := (*SilentError)(nil); errors.As(failure, &silent) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, moment)
		defer cancel()
	}
	return v.showAll(ctx, names, show)
}

// list is a list under way.
type list struct {
	keys     <-chan listing
	answered <-chan struct{} // has a value if the backend has answered since the last one was taken
	cancel   context.CancelFunc
}

// silent returns the error for a list without an answer, and why there is none if the backend says
// so when its time is over.
func (l *list) silent(patience time.Duration) error {
	l.cancel()
	late := time.After(moment)
	for silent := (&SilentError{patience}); ; {
		select {
		case k, more := <-l.keys:
			switch {
			case !more:
				return silent
			case k.err != nil:
				return silent.because(k.err)
			}
		case <-late:
			return silent
		}
	}
}

// listing is a key that the backend has listed, or the error that ended the list.
type listing struct {
	key string
	err error
}

// listed lists on a goroutine of its own, because a backend may not return when ctx ends. The
// channel is closed at the end of the list. The caller has begun a call, which ends then.
func (v *View) listed(ctx context.Context, prefix string) *list {
	listed, answered := make(chan listing), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(driver.OnAnswer(ctx, func() {
		select {
		case answered <- struct{}{}:
		default:
		}
	}))
	go func() {
		defer v.calls.end()
		defer close(listed)
		for e, err := range v.Backend.List(ctx, prefix) {
			select {
			case listed <- listing{e.Key, err}:
			case <-ctx.Done():
				if err == nil {
					return
				}
				select {
				case listed <- listing{err: err}: // why there was no answer
				case <-time.After(moment):
				}
			}
		}
	}()
	return &list{listed, answered, cancel}
}

// next waits for the next key, but not for longer than the backend may say nothing, or than ctx
// lasts.
func (v *View) next(ctx context.Context, listed *list) (l listing, more bool, err error) {
	timer := time.NewTimer(v.Patience)
	defer timer.Stop()
	for asked := time.Now(); ; asked = time.Now() {
		select {
		case l, more = <-listed.keys:
			v.since(asked)
			return l, more, nil
		case <-listed.answered: // with nothing that is wanted
			v.since(asked)
			timer.Reset(v.Patience)
		case <-timer.C:
			return listing{}, false, listed.silent(v.Patience)
		case <-ctx.Done():
			return listing{}, false, ctx.Err()
		}
	}
}

// showAll describes keys, in order, each once, without those that are free by now. If one fails, it
// shows the others as well.
func (v *View) showAll(ctx context.Context, names []string, show func([]Key) error) error {
	slices.Sort(names)
	names = slices.Compact(names)
	for len(names) > 0 {
		var keys []Key
		size := 0
		done, err := v.each(ctx, names, func(_ int, k Key) (more bool) {
			if !k.Free() {
				keys = append(keys, k)
			}
			size += k.size()
			return size < batchBytes
		})
		if v.Again > 0 && err == nil {
			keys, err = v.lookAgain(ctx, keys)
		}
		slices.SortFunc(keys, func(a, b Key) int { return a.Compare(b.Name) })
		if len(keys) > 0 {
			if err := show(keys); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		names = names[done:]
	}
	return nil
}

// each inspects keys, several at the same time. It calls do with the place of each key in names and
// what is known of it, one call at a time. When do returns false or an inspection fails, it begins
// no more. It returns how many it has begun, all of which are done then.
func (v *View) each(ctx context.Context, names []string,
	do func(i int, k Key) (more bool)) (begun int, err error) {
	var (
		work  sync.WaitGroup
		mu    sync.Mutex
		ended bool
		first error
		todo  = make(chan int)
	)
	several := 1 // keys in a question
	if _, ok := v.Backend.(driver.BatchInspector); ok {
		several = severalKeys
	}
	for range min(together, len(names)) {
		work.Go(func() {
			for i := range todo {
				part := names[i:min(i+several, len(names))]
				v.about(ctx, part, func(j int, key Key, err error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						ended = !do(i+j, key) || ended
					case first == nil:
						// The others would most likely fail too, each after the same time.
						first, ended = err, true
					}
				})
			}
		})
	}
	for begun < len(names) {
		mu.Lock()
		stop := ended
		mu.Unlock()
		if stop {
			break
		}
		todo <- begun
		begun = min(begun+several, len(names))
	}
	close(todo)
	work.Wait()
	return begun, first
}

// about asks about keys and calls do with what is known of each, or why nothing is.
func (v *View) about(ctx context.Context, names []string, do func(i int, k Key, err error)) {
	in, ok := v.Backend.(driver.BatchInspector)
	if !ok || len(names) == 1 {
		for i, name := range names {
			key, err := v.inspect(ctx, name)
			do(i, key, err)
		}
		return
	}
	asked := time.Now()
	all, err := Ask(ctx, v, func(ctx context.Context) ([]driver.Inspected, error) {
		all := in.InspectBatch(ctx, names)
		return all, all[0].Err // if there is no answer, there is none for the first either
	})
	now := time.Now()
	if len(all) == 0 {
		do(0, Key{}, err)
		return
	}
	for i, e := range all {
		switch {
		case i == 0 && err != nil:
			do(i, Key{}, err) // it may say that the time was over
		case e.Err != nil:
			do(i, Key{}, e.Err)
		default:
			do(i, v.keyOf(e.Entry, asked, now), nil)
		}
	}
}

func (v *View) keyOf(e driver.Entry, asked, answered time.Time) Key {
	k := keyOf(e, v.Prefix, answered)
	k.asked, k.answered = asked, answered
	return k
}

// Peek describes the key that the backend knows by that name, without what the servers of a set say
// each.
func (v *View) Peek(ctx context.Context, full string) (Key, error) { return v.inspect(ctx, full) }

func (v *View) inspect(ctx context.Context, full string) (Key, error) {
	asked := time.Now()
	e, err := Ask(ctx, v, func(ctx context.Context) (driver.Entry, error) {
		return v.Backend.Inspect(ctx, full)
	})
	if err != nil {
		return Key{}, err
	}
	return v.keyOf(e, asked, time.Now()), nil
}

// nodesInspector is a backend of several nodes, each of which can be asked.
type nodesInspector interface {
	InspectNodes(ctx context.Context, key string) ([]quorum.NodeEntry, error)
}

// Inspect describes the key with that name and, over a set of servers, what each of them says. If
// the set as a whole cannot say anything, the key has what its servers say, and the error is not
// nil.
func (v *View) Inspect(ctx context.Context, name string) (Key, error) {
	full := v.Prefix + name
	asked := make(chan []quorum.NodeEntry, 1)
	nodes, several := v.Backend.(nodesInspector)
	if several {
		go func() {
			entries, _ := Ask(ctx, v,
				func(ctx context.Context) ([]quorum.NodeEntry, error) {
					return nodes.InspectNodes(ctx, full)
				}) // Inspect fails with the same error
			asked <- entries
		}()
	}
	key, err := v.inspect(ctx, full)
	if err != nil {
		key = Key{Name: NameOf(full, v.Prefix), Full: full, Unknown: true}
	}
	if several {
		key.Nodes = nodesOf(<-asked, time.Now())
	}
	return key, err
}

// Semaphore describes the gates, the scouts' key and the slots of the semaphore with that name that
// are held or waited for, in order. If it fails, it returns those that it could describe.
func (v *View) Semaphore(ctx context.Context, name string) (parts []Key, err error) {
	_, several := v.Backend.(nodesInspector)
	err = v.List(ctx, name+permitMark, func(keys []Key) error {
		for _, k := range keys {
			if k.Kind == Lock || k.Text != name {
				continue // its name only begins so
			}
			if several {
				var err error
				if k, err = v.Inspect(ctx, k.Full[len(v.Prefix):]); err != nil {
					return err
				}
			}
			parts = append(parts, k)
		}
		return nil
	})
	return parts, err
}

// Bounded calls f, and waits for it until patience is over or ctx ends, even if f does not return
// when its context ends. It then waits a moment more, so that a late call can say how it ended.
func Bounded[T any](ctx context.Context, patience time.Duration,
	f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		value, err := f(bounded)
		done <- result{value, err}
	}()
	late := make(chan struct{})
	for ended := bounded.Done(); ; {
		select {
		case r := <-done:
			if r.err != nil && bounded.Err() != nil && ctx.Err() == nil {
				r.err = (&SilentError{patience}).because(r.err)
			}
			return r.value, r.err
		case <-ended:
			ended = nil
			defer time.AfterFunc(moment, func() { close(late) }).Stop()
		case <-late:
			var zero T
			if err := ctx.Err(); err != nil {
				return zero, err
			}
			return zero, &SilentError{patience}
		}
	}
}

// moment is how long a call may take to say how it ended after its time is over.
const moment = time.Second
