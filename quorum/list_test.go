package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// rack is a node that shows numbered keys without having them in memory. It can hang, and fail in
// the middle of its list.
type rack struct {
	*memhold.Backend
	from, to int // the numbers of its keys
	hangs    bool
	breaks   int // after so many keys its list fails; 0 never

	late bool // it answers once more when nobody wants its list any more

	takes time.Duration // an answer to InspectBatch

	calls, asked atomic.Int64 // how often it was asked, and about how many keys altogether
}

func (r *rack) entry(i int) driver.Entry {
	return driver.Entry{Key: fmt.Sprintf("k/%07d", i),
		Holder: driver.Party{Owner: fmt.Sprintf("owner %d", i), ExpiresIn: time.Minute}}
}

func (r *rack) List(ctx context.Context, _ string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if r.hangs {
			<-ctx.Done()
			yield(driver.Entry{}, &driver.Error{Err: ctx.Err()})
			return
		}
		driver.Answered(ctx)
		if r.late {
			defer func() {
				<-ctx.Done()
				time.Sleep(time.Millisecond)
				driver.Answered(ctx)
			}()
		}
		for i := r.from; i < r.to; i++ {
			if r.breaks > 0 && i == r.from+r.breaks {
				yield(driver.Entry{}, &driver.Error{Err: errGone})
				return
			}
			if !yield(r.entry(i), nil) {
				return
			}
		}
	}
}

func (r *rack) InspectBatch(ctx context.Context, keys []string) []driver.Inspected {
	r.calls.Add(1)
	r.asked.Add(int64(len(keys)))
	all := make([]driver.Inspected, len(keys))
	if r.takes > 0 {
		select {
		case <-time.After(r.takes):
		case <-ctx.Done():
		}
	}
	for i, key := range keys {
		if all[i].Entry, all[i].Err = r.inspect(ctx, key); ctx.Err() != nil {
			all[i].Err = ctx.Err()
		}
	}
	return all
}

func (r *rack) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	r.calls.Add(1)
	r.asked.Add(1)
	return r.inspect(ctx, key)
}

func (r *rack) inspect(ctx context.Context, key string) (driver.Entry, error) {
	if r.hangs {
		<-ctx.Done()
		return driver.Entry{}, &driver.Error{Err: ctx.Err()}
	}
	var i int
	if _, err := fmt.Sscanf(key, "k/%d", &i); err != nil || i < r.from || i >= r.to {
		return driver.Entry{Key: key}, nil
	}
	return r.entry(i), nil
}

var errGone = errors.New("connection refused")

func racks(t *testing.T, nodes ...*rack) *quorum.Quorum {
	t.Helper()
	var all []driver.Backend
	for _, n := range nodes {
		n.Backend = memhold.New()
		all = append(all, n)
	}
	q, err := quorum.New(all, quorum.WithGuard(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// TestListIsWhole: a list has each key of a majority once, and no other key, even if a node hangs
// or does not answer. If a node on which others relied fails in the middle of its list, the list
// goes on without it, and only what that node had listed may come twice.
func TestListIsWhole(t *testing.T) {
	full := func() *rack { return &rack{to: 500} }
	breaks := func(after int) *rack { return &rack{to: 500, breaks: after} }
	for what, c := range map[string]struct {
		nodes    []*rack
		from, to int // keys on a majority
		twice    int // keys that may come twice
	}{
		"all": {[]*rack{full(), full(), full()}, 0, 500, 0},
		"shifted": {[]*rack{{to: 300}, {from: 100, to: 400}, {from: 200, to: 500}},
			100, 400, 0},
		"first has none": {[]*rack{{}, {to: 400}, {to: 400}}, 0, 400, 0},
		"first hangs":    {[]*rack{{hangs: true}, full(), {from: 100, to: 500}}, 100, 500, 0},
		"last hangs":     {[]*rack{full(), full(), {hangs: true}}, 0, 500, 0},
		"first breaks":   {[]*rack{breaks(200), full(), full()}, 0, 500, 200},
		"breaks at once": {[]*rack{full(), breaks(1), full()}, 0, 500, 1},
		"two of five break": {[]*rack{breaks(90), breaks(40), full(), full(), full()},
			0, 500, 130},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				q := racks(t, c.nodes...)
				begun := time.Now()
				times := make(map[string]int)
				sum := 0
				for e, err := range q.List(t.Context(), "k/") {
					if err != nil {
						t.Fatal(err)
					}
					times[e.Key]++
					sum++
				}
				for i := c.from; i < c.to; i++ {
					if times[c.nodes[0].entry(i).Key] == 0 {
						t.Errorf("List does not show key %d", i)
					}
				}
				if more := sum - (c.to - c.from); len(times) != c.to-c.from || more > c.twice {
					t.Errorf("lists %d keys, %d of them twice; want %d and at most %d", len(times),
						more, c.to-c.from, c.twice)
				}
				// The pause for the node that hangs begins after the last question, for which a
				// node has a moment.
				if took := time.Since(begun); took > 7*time.Second {
					t.Errorf("List took %v; want 7s at most", took)
				}
			})
		})
	}
}

// TestListTellsOfAnswers: nodes that have nothing to list still tell that they answer, but one that
// answers alone does not hide that the others hang.
func TestListTellsOfAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for hanging, want := range []bool{true, true, false} {
			nodes := []*rack{{}, {}, {}}
			for _, n := range nodes[:hanging] {
				n.hangs = true
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var answers atomic.Int64
			var failed error
			for _, err := range racks(t, nodes...).List(driver.OnAnswer(ctx,
				func() { answers.Add(1) }), "") {
				failed = err
			}
			cancel()
			if (answers.Load() > 0) != want || (failed == nil) != want {
				t.Errorf("%d of 3 hang: tells %d times, %v", hanging, answers.Load(), failed)
			}
		}
	})
}

// TestListTellsNothingAfterItsEnd: the caller's function is not called any more, whatever nodes
// still answer.
func TestListTellsNothingAfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var answers atomic.Int64
		ctx := driver.OnAnswer(t.Context(), func() { answers.Add(1) })
		q := racks(t, &rack{to: 3, late: true}, &rack{to: 3, late: true}, &rack{to: 3, late: true})
		for _, err := range q.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // a majority has answered then
			break
		}
		told := answers.Load()
		time.Sleep(time.Second)
		if more := answers.Load() - told; told == 0 || more > 0 {
			t.Errorf("told %d times during the list and %d times after it; want some, and none",
				told, more)
		}
	})
}

// TestListAsksOnce: about a lock that all nodes have, the first asks each of the others, and they
// ask the first, all of them about many locks in one call.
func TestListAsksOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const keys = 2000
		nodes := []*rack{{to: keys}, {to: keys}, {to: keys}}
		q := racks(t, nodes...)
		n := 0
		for _, err := range q.List(t.Context(), "k/") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		for i, want := range []int64{2 * keys, keys, keys} {
			if asked := nodes[i].asked.Load(); asked > want {
				t.Errorf("node %d was asked about %d keys; want %d", i, asked, want)
			}
			if calls := nodes[i].calls.Load(); calls > want/8 {
				t.Errorf("node %d was asked %d times; want %d at most", i, calls, want/8)
			}
		}
		if n != keys {
			t.Errorf("%d keys are listed; want %d", n, keys)
		}
	})
}

// TestListBearsOneThatIsSlow: a node that answers slowly, as on a busy machine, has its keys listed
// once and not twice.
func TestListBearsOneThatIsSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const keys = 1000
		first := &rack{to: keys, takes: 2500 * time.Millisecond}
		q := racks(t, first, &rack{to: keys}, &rack{to: keys})
		n := 0
		for _, err := range q.List(t.Context(), "k/") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != keys {
			t.Errorf("%d keys are listed; want %d", n, keys)
		}
	})
}

// TestInspectBatch: about many keys each node is asked once, and each key has the answer that
// Inspect gives.
func TestInspectBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes := []*rack{{to: 30}, {to: 20}, {from: 10, to: 30}}
		q := racks(t, nodes...)
		var keys []string
		for i := range 40 {
			keys = append(keys, nodes[0].entry(i).Key)
		}
		got := q.InspectBatch(t.Context(), keys)
		for i, node := range nodes {
			if n := node.calls.Load(); n != 1 {
				t.Errorf("node %d was asked %d times; want once", i, n)
			}
		}
		for i, key := range keys {
			want, err := q.Inspect(t.Context(), key)
			if err != nil || !reflect.DeepEqual(got[i], driver.Inspected{Entry: want}) {
				t.Errorf("%s: %+v; want %+v, %v", key, got[i], want, err)
			}
		}
		nodes[0].hangs, nodes[1].hangs = true, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, e := range q.InspectBatch(ctx, keys) {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				t.Errorf("without a majority: %+v; want the end of the context", e)
			}
		}
	})
}

// TestListWithoutAMajority: if most lists fail, the list ends with an error that names the nodes.
func TestListWithoutAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := racks(t, &rack{to: 100}, &rack{to: 100, breaks: 50}, &rack{to: 100, breaks: 70})
		var last error
		for _, err := range q.List(t.Context(), "") {
			last = err
		}
		var e *quorum.Error
		if !errors.As(last, &e) || e.Got != 1 || e.Need != 2 {
			t.Errorf("ends with %v; want that 1 of 2 nodes that are needed has answered", last)
		}
	})
}

// TestListTakesLittleMemory: memory does not grow with the number of keys.
func TestListTakesLittleMemory(t *testing.T) {
	const keys = 8_000
	q := racks(t, &rack{to: keys}, &rack{to: keys}, &rack{to: keys})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, n := heap(), uint64(0), 0
	for _, err := range q.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%(keys/4) == 0 {
			most = max(most, heap())
		}
	}
	if n != keys {
		t.Errorf("lists %d keys, want %d", n, keys)
	}
	// All of them would take 4 MiB.
	if grown := int64(most) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes more in use with %d keys; want 1 MiB at most", grown, keys)
	}
}

// TestInspectDoesNotWaitForOneThatIsLate: a caller that asks for many keys waits for a node that
// hangs once a second, and not for each key, as long as the others agree.
func TestInspectDoesNotWaitForOneThatIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hangs := &rack{hangs: true, to: 1000}
		q := racks(t, &rack{to: 500}, &rack{to: 500}, hangs)
		begun := time.Now()
		for i := range 1000 {
			e, err := q.Inspect(t.Context(), hangs.entry(i).Key)
			if held := e.Holder.Owner != ""; err != nil || held != (i < 500) {
				t.Fatalf("Inspect(%d) = %+v, %v; want a holder of the first 500 alone", i, e, err)
			}
		}
		if took := time.Since(begun); took > 10*quorum.DefaultNodeTimeout {
			t.Errorf("1000 keys took %v; want ten node timeouts at most", took)
		}
		// If the others do not agree, the node is worth waiting for.
		q = racks(t, &rack{to: 500}, &rack{}, &rack{to: 500})
		for i := range 3 {
			if e, err := q.Inspect(t.Context(), hangs.entry(i).Key); err != nil ||
				e.Holder.Owner == "" {
				t.Errorf("Inspect(%d) = %+v, %v; want a holder", i, e, err)
			}
		}
	})
}
