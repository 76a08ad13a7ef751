package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspection shows what there is, and changes nothing.
var inspectionRules = []rule{
	{name: "Inspect/FreeKey", needs: inspect, check: func(s *suite) {
		s.unheld(s.open(), "k")
	}},
	{name: "Inspect/Holder", needs: inspect, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		token := s.hold(b1, a).Token
		for _, b := range []driver.Backend{b1, b2} {
			e := s.inspect(b, "k")
			if e.Key != "k" || e.Holder.Owner != a.Owner || len(e.Waiters) != 0 {
				s.Fatalf("Inspect = %+v; want only the holder %q", e, a.Owner)
			}
			if t := e.Holder.Token; t != token && t != 0 {
				s.Fatalf("Inspect shows token %d; the holder has %d", t, token)
			}
			if left := e.Holder.ExpiresIn; left < 0 || left > a.TTL || left == 0 &&
				s.Capabilities.ExpiresIn {
				s.Fatalf("Inspect shows a lease of %v; want what remains of %v", left, a.TTL)
			}
		}
		s.renew(b1, a, driver.Held)
		s.release(b1, a, driver.Held)
		s.unheld(b1, "k")
	}},
	{name: "Inspect/WaitersInOrder", needs: inspect | queue, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		var owners []string
		for i, ticket := range []uint64{100, 300, 200} {
			w := s.queued("k")
			w.Ticket = ticket
			owners = append(owners, w.Owner)
			if r := s.busy(b, w, a); r.Presence <= 0 {
				s.Fatalf("waiter %d is not queued", i)
			}
		}
		want := []string{owners[0], owners[2], owners[1]}
		e := s.inspect(b, "k")
		var got []string
		for _, w := range e.Waiters {
			got = append(got, w.Owner)
			if w.ExpiresIn < 0 || w.Token != 0 {
				s.Errorf("Inspect shows waiter %+v; want no token, and what remains of a presence",
					w)
			}
		}
		if e.Holder.Owner != a.Owner || !slices.Equal(got, want) {
			s.Fatalf("Inspect shows holder %q and waiters %q; want %q and %q", e.Holder.Owner, got,
				a.Owner, want)
		}
	}},
	{name: "Inspect/DeadAreNotShown", needs: inspect | queue | expiry, check: func(s *suite) {
		b := s.open()
		a, w, short := s.claim("k"), s.short(s.queued("k")), s.short(s.claim("k2"))
		s.hold(b, a)
		s.hold(b, short)
		s.elapse(max(short.TTL, s.wait(b, w, a, 1).Presence))
		if e := s.inspect(b, "k"); len(e.Waiters) != 0 {
			s.Fatalf("Inspect shows waiters %+v, which are dead", e.Waiters)
		}
		s.unheld(b, "k2")
		s.lists(b.(driver.Inspector), "", []string{"k"})
	}},
	{name: "List/ByPrefix", needs: inspect, check: func(s *suite) {
		b := s.open()
		keys := []string{"a", "a*", "a*b", "ab", "a\x00", "a\xff", "A", "b", "[a]b", "a?b", "?",
			"{a}", `a\b`}
		for _, key := range keys {
			s.hold(b, s.claim(key))
		}
		i := b.(driver.Inspector)
		s.lists(i, "", keys)
		s.lists(i, "a", []string{"a", "a*", "a*b", "ab", "a\x00", "a\xff", "a?b", `a\b`})
		s.lists(i, "a*", []string{"a*", "a*b"})
		s.lists(i, "a?", []string{"a?b"})
		s.lists(i, "[a]", []string{"[a]b"})
		s.lists(i, `a\`, []string{`a\b`})
		s.lists(i, "ab", []string{"ab"})
		s.lists(i, "a\xff", []string{"a\xff"})
		s.lists(i, "nothing", nil)
	}},
	{name: "List/ShowsHolders", needs: inspect, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		token := s.hold(b, a).Token
		ctx, cancel := s.limit()
		defer cancel()
		for e, err := range b.(driver.Inspector).List(ctx, "k") {
			if err != nil {
				s.Fatalf("List: %v", err)
			}
			if e.Key != "k" || e.Holder.Owner != a.Owner || e.Holder.Token != token &&
				e.Holder.Token != 0 || e.Waiters != nil {
				s.Fatalf("List yields %+v; want the holder %q with token %d, and no waiters", e,
					a.Owner, token)
			}
		}
		s.release(b, a, driver.Held)
		s.lists(b.(driver.Inspector), "", nil)
	}},
	{name: "List/TellsOfAnswers", needs: inspect, check: func(s *suite) {
		b := s.open()
		s.hold(b, s.claim("k"))
		ctx, cancel := s.limit()
		defer cancel()
		var heard atomic.Int64
		ctx = driver.OnAnswer(ctx, func() { heard.Add(1) })
		for e, err := range b.(driver.Inspector).List(ctx, "nothing") {
			s.Fatalf("List yields %+v, %v; want nothing", e, err)
		}
		if heard.Load() == 0 {
			s.Fatalf("List does not call driver.Answered when the store answers without a result")
		}
	}},
	{name: "List/CanBeStopped", needs: inspect, check: func(s *suite) {
		b := s.open()
		for _, key := range []string{"a", "b", "c"} {
			s.hold(b, s.claim(key))
		}
		ctx, cancel := s.limit()
		defer cancel()
		for range b.(driver.Inspector).List(ctx, "") {
			break
		}
		cancel()
		for _, err := range b.(driver.Inspector).List(ctx, "") {
			if !errors.Is(err, context.Canceled) {
				s.Fatalf("List with a context that has ended yields %v; want an error that is %q",
					err, context.Canceled)
			}
		}
		// The backend is not stuck in the iteration that was left.
		s.hold(b, s.claim("d"))
	}},
	{name: "Check/Findings", needs: checker, check: func(s *suite) {
		ctx, cancel := s.limit()
		defer cancel()
		findings, err := s.open().(driver.Checker).Check(ctx)
		if err != nil {
			s.Fatalf("Check: %v", err)
		}
		for i, f := range findings {
			if f.Severity < driver.Note || f.Severity > driver.Failure || f.Code == "" ||
				f.Summary == "" {
				s.Errorf("finding %+v: want a severity, a code and a summary", f)
			}
			if i > 0 && f.Severity > findings[i-1].Severity {
				s.Errorf("finding %+v comes after %+v, which is less severe", f, findings[i-1])
			}
		}
	}},
	{name: "Identity/IsStable", needs: identify, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		if x, y, z := s.identity(b1), s.identity(b1), s.identity(b2); x == "" || x != y || x != z {
			s.Fatalf("Identity of one store is %q, %q, and %q by another client; want the same", x,
				y, z)
		}
	}},
	{name: "Identity/R32_ChangesWithRestart", needs: identify | forget, check: func(s *suite) {
		b := s.open()
		before := s.identity(b)
		s.store.Forget(s)
		s.eventually("Identity is the one from before the restart", func() bool {
			ctx, cancel := s.limit()
			defer cancel()
			after, err := b.(driver.Identifier).Identity(ctx)
			return err == nil && after != before
		})
	}},
}

func (s *suite) inspect(b driver.Backend, key string) driver.Entry {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	e, err := b.(driver.Inspector).Inspect(ctx, key)
	if err != nil {
		s.Fatalf("Inspect(%q): %v", key, err)
	}
	s.describes(ctx, b, e)
	return e
}

// describes checks that a BatchInspector says of a key, also between others, what Inspect says.
func (s *suite) describes(ctx context.Context, b driver.Backend, want driver.Entry) {
	s.Helper()
	in, ok := b.(driver.BatchInspector)
	if !ok {
		return
	}
	if all := in.InspectBatch(ctx, nil); len(all) != 0 {
		s.Errorf("InspectBatch of no keys = %+v", all)
	}
	free := want.Key + " and nobody has this"
	all := in.InspectBatch(ctx, []string{free, want.Key, free})
	if len(all) != 3 {
		s.Fatalf("InspectBatch describes %d of 3 keys", len(all))
	}
	for i, e := range all {
		if e.Err != nil {
			s.Fatalf("InspectBatch(%q): %v", want.Key, e.Err)
		}
		if i != 1 && (e.Entry.Key != free || len(owners(e.Entry)) > 0) {
			s.Errorf("InspectBatch of a free key = %+v", e.Entry)
		}
	}
	if got := all[1].Entry; got.Key != want.Key || !slices.Equal(owners(got), owners(want)) {
		s.Errorf("InspectBatch = %+v; but Inspect = %+v", got, want)
	}
}

// owners returns the values and tokens that an entry shows, and who has which part.
func owners(e driver.Entry) (all []string) {
	if e.Holder != (driver.Party{}) {
		all = append(all, fmt.Sprint("holder ", e.Holder.Owner, e.Holder.Token))
	}
	for _, p := range e.Sharers {
		all = append(all, fmt.Sprint("sharer ", p.Owner, p.Token))
	}
	for _, p := range e.Waiters {
		all = append(all, fmt.Sprint("waiter ", p.Owner, p.Token))
	}
	return all
}

// unheld checks that Inspect shows nothing but the key.
func (s *suite) unheld(b driver.Backend, key string) {
	s.Helper()
	if e := s.inspect(b, key); e.Key != key || e.Holder != (driver.Party{}) || e.Waiters != nil {
		s.Fatalf("Inspect(%q) = %+v; want only the key", key, e)
	}
}

// lists checks that List yields exactly the keys, each once.
func (s *suite) lists(i driver.Inspector, prefix string, want []string) {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	got := make(map[string]int)
	for e, err := range i.List(ctx, prefix) {
		if err != nil {
			s.Fatalf("List(%q): %v", prefix, err)
		}
		got[e.Key]++
	}
	for _, key := range want {
		if got[key] != 1 {
			s.Errorf("List(%q) yields %.40q %d times; want once", prefix, key, got[key])
		}
		delete(got, key)
	}
	if len(got) > 0 {
		s.Errorf("List(%q) yields %d keys too many, such as %.40q", prefix, len(got),
			slices.Collect(maps.Keys(got))[0])
	}
}

func (s *suite) identity(b driver.Backend) string {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	identity, err := b.(driver.Identifier).Identity(ctx)
	if err != nil {
		s.Fatalf("Identity: %v", err)
	}
	return identity
}
