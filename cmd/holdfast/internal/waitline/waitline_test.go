package waitline_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/waitline"
	"github.com/holdfast-go/holdfast/driver"
)

// screen collects the output.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// take returns the output since the last call.
func (s *screen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	s.text.Reset()
	return text
}

// since returns ten seconds ago for holders with a label; others are not known.
func since(_ context.Context, _ string, h holdfast.Holder) time.Time {
	if h.Label == "" {
		return time.Time{}
	}
	return time.Now().Add(-10 * time.Second)
}

func columns(n int) func() int { return func() int { return n } }

// holder returns a Holder as an owner value of Holdfast describes it.
func holder(label string) holdfast.Holder {
	return holdfast.Holder{Value: "x", Host: "web1", PID: 42, Label: label}
}

const erase = "\r\x1b[K"

func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		line := waitline.New(&s, []string{"nightly"}, columns(200), since)
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		}
		expect("")
		line.Update(holdfast.WaitingEvent{Key: "nightly", Holder: holder("backup"),
			ExpiresIn: 20 * time.Second, Place: 2, Waited: 10 * time.Millisecond})
		expect(erase +
			`holdfast: waiting 0s for "nightly", held by backup (pid 42 on web1) for 10s (lease 20s, renewed while it lives), place 2 in the queue`)
		time.Sleep(time.Second)
		expect(erase +
			`holdfast: waiting 1s for "nightly", held by backup (pid 42 on web1) for 11s (lease 19s, renewed while it lives), place 2 in the queue`)
		line.Update(holdfast.WaitingEvent{Key: "nightly", Holder: holder(""),
			ExpiresIn: 30 * time.Second, Place: 1, Waited: 61 * time.Second})
		expect(erase +
			`holdfast: waiting 1m1s for "nightly", held by pid 42 on web1 (lease 30s, renewed while it lives), place 1 in the queue`)
		line.Update(holdfast.WaitingEvent{Key: "nightly", Waited: 62 * time.Second})
		expect(erase + `holdfast: waiting 1m2s for "nightly"`)
		line.End(true)
		expect(erase)
	})
}

// TestSinceWhenIsNotKnown: if the backend cannot tell when a holder got the lock, the line says for
// how long this wait has seen the holder. An answer without a holder does not end that time.
func TestSinceWhenIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		line := waitline.New(&s, []string{"nightly"}, columns(200), since)
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); got != erase+want {
				t.Errorf("got  %q\nwant %q", got, erase+want)
			}
		}
		begin := time.Now()
		tell := func(h holdfast.Holder) {
			line.Update(holdfast.WaitingEvent{Key: "nightly", Holder: h,
				ExpiresIn: 30 * time.Second, Waited: time.Since(begin)})
		}
		tell(holder(""))
		expect(`holdfast: waiting 0s for "nightly", held by pid 42 on web1 (lease 30s, renewed while it lives)`)
		time.Sleep(999 * time.Millisecond)
		tell(holder(""))
		expect(`holdfast: waiting 0s for "nightly", held by pid 42 on web1 (lease 30s, renewed while it lives)`)
		time.Sleep(time.Millisecond)
		tell(holdfast.Holder{})
		expect(`holdfast: waiting 1s for "nightly"`)
		tell(holder(""))
		expect(`holdfast: waiting 1s for "nightly", held by pid 42 on web1 for at least 1s (lease 30s, renewed while it lives)`)
		other := holdfast.Holder{Value: "of another library"}
		tell(other)
		expect(`holdfast: waiting 1s for "nightly", held by "of another library" (lease ends in 30s unless renewed)`)
		time.Sleep(time.Second)
		expect(`holdfast: waiting 2s for "nightly", held by "of another library" for at least 1s (lease ends in 29s unless renewed)`)
		if got, want := line.Held("nightly", other, 0), `"of another library" for at least 1s`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		// a holder that this wait has not seen
		if got, want := line.Held("nightly", holder(""), 0), `pid 42 on web1`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := line.Held("nightly", holder("x"), 0), `x (pid 42 on web1) for 10s`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		line.End(false)
	})
}

func TestNoTerminal(t *testing.T) {
	for acquired, want := range map[bool]string{true: "holdfast: acquired \"nightly\" after 12.3s\n",
		false: ""} {
		synctest.Test(t, func(t *testing.T) {
			var s screen
			line := waitline.New(&s, []string{"nightly"}, nil, since)
			for range 3 {
				line.Update(holdfast.WaitingEvent{Key: "nightly", Holder: holder("backup"),
					ExpiresIn: 20 * time.Second, Place: 1})
				synctest.Wait()
			}
			if got, want := s.take(),
				"holdfast: waiting for \"nightly\", held by backup (pid 42 on web1) for 10s (lease 20s, renewed while it lives), place 1 in the queue\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			time.Sleep(12345 * time.Millisecond)
			line.End(acquired)
			if got := s.take(); got != want {
				t.Errorf("acquired %v: got %q, want %q", acquired, got, want)
			}
		})
	}
}

// TestSeveralLocks: a pipe gets a line for each lock that is waited for, and the time of all waits.
func TestSeveralLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		line := waitline.New(&s, []string{"c", "a", "b", "d"}, nil, nil)
		for _, key := range []string{"b", "b", "d", "d"} {
			line.Update(holdfast.WaitingEvent{Key: key, Holder: holder("backup"), Waited: 1e9})
			synctest.Wait()
			time.Sleep(time.Second)
		}
		line.End(true)
		want := "holdfast: waiting for \"b\", held by backup (pid 42 on web1)\n" +
			"holdfast: waiting for \"d\", held by backup (pid 42 on web1) for at least 2s\n" +
			"holdfast: acquired \"c\", \"a\", \"b\" and 1 more after 5s\n"
		if got := s.take(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var s screen
		line := waitline.New(&s, []string{"a", "b"}, columns(200), nil)
		for _, key := range []string{"a", "b"} {
			line.Update(holdfast.WaitingEvent{Key: key, Waited: time.Second})
			synctest.Wait()
			want := erase + "holdfast: waiting 1s for \"" + key + "\""
			if got := s.take(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		line.End(true)
	})
}

func TestNobodyWaits(t *testing.T) {
	for _, width := range []func() int{nil, columns(80)} {
		synctest.Test(t, func(t *testing.T) {
			var s screen
			line := waitline.New(&s, []string{"nightly"}, width, since)
			time.Sleep(time.Minute)
			if _, heard := line.Last(); heard {
				t.Error("something was heard")
			}
			line.End(true)
			if got := s.take(); got != "" {
				t.Errorf("got %q, want silence", got)
			}
		})
	}
}

func TestLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := waitline.New(&screen{}, []string{"nightly"}, nil, since)
		line.Update(holdfast.WaitingEvent{Place: 3})
		line.Update(holdfast.WaitingEvent{Place: 2})
		if last, heard := line.Last(); !heard || last.Place != 2 {
			t.Errorf("got %+v, %v", last, heard)
		}
		line.End(false)
	})
}

// TestBlockedScreen: a terminal that is stopped by control-S delays End for a second at most, and
// Update not at all.
func TestBlockedScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		line := waitline.New(blocked(unblock), []string{"nightly"}, columns(80), since)
		for range 100 {
			line.Update(holdfast.WaitingEvent{})
		}
		synctest.Wait()
		line.End(true)
		close(unblock)
	})
}

type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// TestNothingMovesTheCursor: the line stays one line and fits, whatever is in names and labels.
func TestNothingMovesTheCursor(t *testing.T) {
	nasty := "\x1b[2J\r\n\x00\x07\u0085\u202e\u200d\xff\t日本語" + strings.Repeat("é", 300)
	for width := range 60 {
		synctest.Test(t, func(t *testing.T) {
			var s screen
			line := waitline.New(&s, []string{nasty}, columns(width), since)
			line.Update(
				holdfast.WaitingEvent{Key: nasty, Place: 1,
					Holder: driver.ParseOwner(driver.NewOwner("/h/1/" + nasty))})
			synctest.Wait()
			text, found := strings.CutPrefix(s.take(), erase)
			if !found || waitline.Printable(text) != text {
				t.Errorf("got %q", text)
			}
			if used := widest(text); used >= width && used > 0 {
				t.Errorf("%d of %d columns are used by %q", used, width, text)
			}
			line.End(true)
		})
	}
}

// widest returns the most columns that a text can take.
func widest(text string) (columns int) {
	for _, r := range text {
		columns++
		if r >= 0x80 {
			columns++
		}
	}
	return columns
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abcdef", 6, "abcdef"},
		{"abcdef", 7, "abcdef"},
		{"abcdef", 5, "ab..."},
		{"abcdef", 3, "..."},
		{"abcdef", 2, ".."},
		{"abcdef", 0, ""},
		{"abcdef", -1, ""},
		{"", 0, ""},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日..."},
		{"日本語", 4, "..."},
	} {
		if got := waitline.Fit(test.text, test.columns); got != test.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func FuzzFit(f *testing.F) {
	f.Add("holdfast: waiting", 10)
	f.Add("日本語\x1b[2J\u202e", 5)
	f.Fuzz(func(t *testing.T, text string, columns int) {
		got := waitline.Fit(waitline.Printable(text), columns)
		if used := widest(got); used > max(columns, 0) {
			t.Errorf("Fit(%q, %d) = %q takes %d columns", text, columns, got, used)
		}
		if waitline.Printable(got) != got {
			t.Errorf("Fit(%q, %d) = %q is not printable", text, columns, got)
		}
	})
}
