package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/fence"
)

var orderRules = []rule{
	{name: "Order/AcceptsLarger", check: func(s *suite) {
		r := s.resource("r")
		for _, token := range []fence.Token{1, 2, 9, 10, 100, 1 << 40, fence.MaxToken - 1,
			fence.MaxToken} {
			s.accepts(r, token, token.String())
		}
	}},
	{name: "Order/AcceptsTheSameAgain", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		s.accepts(r, 5, "b")
		s.accepts(r, 5, "b") // changes nothing, which is no refusal
	}},
	{name: "Order/RefusesSmaller", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		s.refuses(r, 4, 5)
		s.refuses(r, 1, 5)
		s.accepts(r, 5, "b")
		s.accepts(r, 6, "c")
		s.refuses(r, 5, 6)
	}},
	{name: "Order/RefusalTellsOrIsSilentAboutTheNewest", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 1<<40, "a")
		s.refuses(r, 1<<40-1, 1<<40)
	}},
	{name: "Order/RefusedIsNotRemembered", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		s.refuses(r, 3, 5)
		s.refuses(r, 4, 5) // larger than the one refused before
		s.accepts(r, 5, "b")
	}},
	{name: "Order/ComparesNumbers", check: func(s *suite) {
		for i, pair := range [][2]fence.Token{{9, 10}, {99, 1000}, {1<<32 - 1, 1 << 32},
			{fence.MaxToken - 1, fence.MaxToken}} {
			r := s.resource("r" + strconv.Itoa(i))
			s.accepts(r, pair[0], "a")
			s.accepts(r, pair[1], "b")
			s.refuses(r, pair[0], pair[1])
		}
	}},
	{name: "Order/ResourcesAreApart", check: func(s *suite) {
		names := []string{"r", "R", "r ", "ŕ", "r\t"}
		for _, name := range names {
			s.resource(name)
		}
		for i, name := range names {
			s.accepts(name, fence.Token(10-i), name)
		}
		for i, name := range names {
			s.has(name, name)
			s.refuses(name, fence.Token(9-i), fence.Token(10-i))
		}
	}},
	{name: "Order/FirstWrite", check: func(s *suite) {
		if s.Create == nil {
			s.accepts("r", 7, "a")
			s.refuses("r", 6, 7)
			return
		}
		s.fails("r", 7, fence.ErrNotFound)
		s.has("r", "")
		s.accepts(s.resource("r"), 1, "a") // the write that found nothing has left no token
	}},
}

var invalidRules = []rule{
	{name: "Invalid/Tokens", check: func(s *suite) {
		r := s.resource("r")
		for range 2 { // unwritten, and written
			before := s.value(r)
			for _, token := range []fence.Token{0, fence.MaxToken + 1, math.MaxInt64,
				math.MaxInt64 + 1, math.MaxUint64} {
				s.fails(r, token, fence.ErrInvalid)
				s.has(r, before)
			}
			s.accepts(r, 1, "a")
		}
	}},
	{name: "Invalid/Names", needs: func(s *suite) string {
		if s.AnyKey {
			return "the harness says AnyKey"
		}
		return ""
	}, check: func(s *suite) {
		for _, name := range []string{"", "a\x00b", "\xff",
			strings.Repeat("a", fence.MaxResourceLen+1)} {
			s.fails(name, 1, fence.ErrInvalid)
		}
		long := strings.Repeat("a", fence.MaxResourceLen-1)
		s.accepts(s.resource(long+"b"), 2, "b")
		s.accepts(s.resource(long+"c"), 1, "c")
		s.refuses(long+"b", 1, 2)
	}},
}

var errWhy = errors.New("the caller's reason")

var contextRules = []rule{
	{name: "Context/EndedBefore", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		ctx, cancel := context.WithCancelCause(s.Context())
		cancel(errWhy)
		err := s.Write(ctx, r, 9, "b", nil)
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errWhy) ||
			errors.Is(err, fence.ErrStale) {
			s.Errorf("write with a context that has ended: %v; want the context's error", err)
		}
		s.has(r, "a")
		s.accepts(r, 6, "c") // the larger token was not remembered
	}},
	{name: "Context/EndsInTheMiddle", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		w := s.begin(ctx, r, 6, "b")
		cancel()
		w.resume()
		err := s.outcome(w)
		if errors.Is(err, fence.ErrStale) {
			s.Errorf("write whose context ended: %v; want no ErrStale", err)
		}
		// an error may come after the write was final
		if v := s.value(r); v != "b" && (err == nil || v != "a") {
			s.Errorf(
				"the value is %q after a write whose context ended in the middle, with the error %v",
				v, err)
		}
		s.refuses4(r)
		s.accepts(r, 7, "c") // nothing is left locked
	}},
	{name: "Context/EndsWhileWaiting", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		first := s.begin(s.Context(), r, 6, "b")
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		second := s.start(ctx, r, 7, "c")
		done, err := s.settled(second)
		if !done {
			cancel()
			err = s.outcome(second)
		}
		first.resume()
		if e := s.outcome(first); err != nil && e != nil {
			s.Errorf("write that was paused: %v; want it accepted, as no other was", e)
		}
		if err == nil && !done {
			s.Errorf("write that waited until its context ended is accepted")
		}
		// or it may still be written, as long as no larger token comes
		if !errors.Is(err, fence.ErrUnknown) {
			want := "b"
			if err == nil {
				want = "c"
			}
			s.has(r, want)
		}
		s.accepts(r, 8, "d")
	}},
}

// refuses4 refuses token 4 after 5 or a larger one.
func (s *suite) refuses4(resource string) {
	s.Helper()
	s.isStale(s.try(resource, 4, "stale"), resource, 4)
}

var concurrencyRules = []rule{
	{name: "Concurrency/OlderThatBeganFirst", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 1, "first")
		s.overtake(r)
	}},
	{name: "Concurrency/OlderThatBeganFirstOnANewResource", check: func(s *suite) {
		s.overtake(s.resource("r"))
	}},
	{name: "Concurrency/NewerThatBeganFirst", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 1, "first")
		newer := s.begin(s.Context(), r, 3, "newer")
		older := s.start(s.Context(), r, 2, "older")
		done, err := s.settled(older)
		newer.resume()
		newerErr := s.outcome(newer)
		if !done {
			err = s.outcome(older)
		}
		if newerErr != nil {
			// The store let the older write through first and gave up the newer one, so nothing
			// falls back.
			s.accepts(r, 3, "newer")
		} else if err == nil && !done {
			s.Errorf("write with token 2 is accepted after it waited for token 3")
		}
		s.has(r, "newer")
		s.refuses(r, 2, 3)
	}},
	{name: "Concurrency/ManyWriters", check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 1, "1")
		const writers, writes = 4, 8
		var wg sync.WaitGroup
		failures := make(chan string, 2*writers*writes)
		for w := range writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range writes {
					token := fence.Token(2 + i*writers + w)
					if err := s.insist(r, token); err != nil && !errors.Is(err, fence.ErrStale) {
						failures <- fmt.Sprintf("token %d: %v", token, err)
					}
					// The token below was accepted before, or is too old itself.
					if err := s.insist(r, token-1); !errors.Is(err, fence.ErrStale) {
						failures <- fmt.Sprintf("token %d after %d: %v", token-1, token, err)
					}
				}
			}()
		}
		// What is read may never fall back while they write.
		stop := make(chan struct{})
		read := make(chan string, 1)
		go func() { read <- s.watch(r, stop) }()
		wg.Wait()
		close(stop)
		if complaint := <-read; complaint != "" {
			s.Error(complaint)
		}
		close(failures)
		for f := range failures {
			s.Error(f)
		}
		// nobody had a larger one, so nobody could refuse it
		s.has(r, strconv.Itoa(1+writers*writes))
	}},
}

// insist writes the token as the value. If the store refuses for another reason than the token, it
// writes again.
func (s *suite) insist(resource string, token fence.Token) error {
	var err error
	for range 1000 {
		if err = s.try(resource, token, token.String()); err == nil ||
			errors.Is(err, fence.ErrStale) {
			return err
		}
	}
	return err
}

// watch reads the resource until stop is closed, and complains when the value is ever smaller than
// before.
func (s *suite) watch(resource string, stop <-chan struct{}) string {
	last := 0
	for {
		ctx, cancel := s.limit() // for each: all writers together may take longer
		text, err := s.Read(ctx, resource)
		cancel()
		if err != nil {
			return fmt.Sprintf("Read: %v", err)
		}
		value, err := strconv.Atoi(text)
		if err != nil || value < last {
			return fmt.Sprintf("%q was read after %d", text, last)
		}
		last = value
		select {
		case <-stop:
			return ""
		default:
		}
	}
}

// overtake has a write with token 2 paused in the middle while a write with token 3 comes. Whether
// the store waits or refuses, what token 3 wrote has to stay.
func (s *suite) overtake(resource string) {
	s.Helper()
	older := s.begin(s.Context(), resource, 2, "older")
	newer := s.start(s.Context(), resource, 3, "newer")
	done, err := s.settled(newer)
	older.resume()
	olderErr := s.outcome(older)
	if !done {
		err = s.outcome(newer)
	}
	switch {
	case errors.Is(err, fence.ErrStale):
		s.Fatalf("write with token 3: %v; no larger one was accepted", err)
	case err != nil: // the store was busy with the older one, and says so
		s.accepts(resource, 3, "newer")
	case done && olderErr == nil:
		s.Errorf("write with token 2 was done after that with token 3, and is not refused")
	}
	s.has(resource, "newer")
	s.refuses(resource, 2, 3)
}

var crashRules = []rule{
	{name: "Crash/RefusesAfterwards", needs: func(s *suite) string {
		if s.Crash == nil {
			return "the store has no Crash"
		}
		return ""
	}, check: func(s *suite) {
		r := s.resource("r")
		s.accepts(r, 5, "a")
		s.Crash(s)
		s.refuses(r, 4, 5)
		s.accepts(r, 5, "b")
	}},
}
