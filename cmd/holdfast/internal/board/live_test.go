package board_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/driver"
)

// TestLive: a page that is opened gets what the backend has, and then what changes.
func TestLive(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		nightly := s.take("nightly", "h1", 71, "backup")
		s.take("report", "h2", 88, "")
		s.want("nightly", "h2", 88, "")
		v := s.watch().sees()
		want := map[string]string{"nightly": "backup h1 71, 1 wait", "report": " h2 88, 0 wait"}
		if !maps.Equal(v.shows(), want) || !v.last.Full || v.last.Title != "memory" {
			t.Errorf("shows %q, %+v; want %q", v.shows(), v.last, want)
		}
		s.free(nightly)
		s.take("third", "h3", 99, "x")
		time.Sleep(every)
		v.sees()
		want = map[string]string{"nightly": " h2 88, 0 wait", "report": " h2 88, 0 wait",
			"third": "x h3 99, 0 wait"}
		if !maps.Equal(v.shows(), want) || v.last.Full || len(v.last.Rows) != 2 {
			t.Errorf("shows %q, %+v; want %q by a change", v.shows(), v.last, want)
		}
		if e := v.last.Ended; len(e) != 1 || e[0].Name != "nightly" || e[0].By.Who != "backup" ||
			e[0].Until != time.Now().UnixMilli() || e[0].About {
			t.Errorf("ended: %+v", e)
		}
		late := s.watch().sees()
		if !maps.Equal(late.shows(), want) || len(late.last.Ended) != 1 {
			t.Errorf("who comes later sees %q, %+v", late.shows(), late.last.Ended)
		}
	})
}

// TestGone: a lock that is free is taken off the page, and its hold is remembered.
func TestGone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		nightly := s.take("nightly", "h1", 71, "backup")
		v := s.watch().sees()
		s.free(nightly)
		time.Sleep(every)
		v.sees()
		if len(v.rows) != 0 || len(v.last.Gone) != 1 || len(v.last.Ended) != 1 {
			t.Errorf("shows %q, %+v", v.shows(), v.last)
		}
	})
}

// TestQuietIsCheap: what only gets older is not sent again.
func TestQuietIsCheap(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		v := s.watch().sees()
		for range 10 {
			time.Sleep(every)
		}
		v.sees()
		if len(v.all) < 10 {
			t.Fatalf("%d states", len(v.all))
		}
		for _, m := range v.all[1:] {
			if m.Full || len(m.Rows) > 0 {
				t.Errorf("sent again: %+v", m.Rows)
			}
		}
	})
}

// TestNobodyWatches: without a page nobody looks. What may have changed at another time is not
// shown as a change of now.
func TestNobodyWatches(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		nightly := s.take("nightly", "h1", 71, "backup")
		time.Sleep(time.Hour)
		if n := s.backend.lists.Load(); n != 0 {
			t.Errorf("%d looks without a page", n)
		}
		nightly.TTL = 24 * time.Hour
		s.acquire(nightly, driver.Held)
		v := s.watch().sees()
		seen := time.Now()
		v.leave()
		<-v.left
		time.Sleep(time.Hour)
		n := s.backend.lists.Load()
		s.free(nightly)
		time.Sleep(time.Hour)
		if again := s.backend.lists.Load(); again != n || n > 2 {
			t.Errorf("%d looks, %d an hour later, without a page", n, again)
		}
		v = s.watch().sees()
		m := v.last
		if len(v.rows) != 0 || len(m.Ended) != 1 || !m.Ended[0].About ||
			m.Ended[0].Until != seen.UnixMilli() {
			t.Errorf("shows %q, %+v; want an end about %v", v.shows(), m.Ended, seen.UnixMilli())
		}
		if b := m.Blind; len(b) != 1 || b[0].From != seen.UnixMilli() ||
			b[0].Until != time.Now().UnixMilli() {
			t.Errorf("nobody has looked: %+v", b)
		}
	})
}

// TestOneReader: any number of pages share the looks, and there is one look at a time.
func TestOneReader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		var all []*viewer
		for range 20 {
			all = append(all, s.watch())
		}
		for range 9 {
			time.Sleep(every)
		}
		for i, v := range all {
			if v.sees(); len(v.rows) != 1 || len(v.all) < 10 {
				t.Errorf("viewer %d has %d states, and %q", i, len(v.all), v.shows())
			}
		}
		if lists, most := s.backend.lists.Load(), s.backend.most.Load(); lists != 10 || most != 1 {
			t.Errorf("%d looks, %d at once, for 20 pages; want 10, one by one", lists, most)
		}
	})
}

// TestSlowPage: a page that does not read does not delay other pages. Then it goes on with the
// newest state, because nothing was kept for it. It has a limited time for each piece.
func TestSlowPage(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		block := make(chan struct{})
		slow := s.watch(func(v *viewer, _ *http.Request) { v.block = block })
		fast := s.watch()
		for i := range 50 {
			s.take(fmt.Sprint(i), "h1", 71, "x")
			time.Sleep(every)
		}
		if fast.sees(); len(fast.rows) != 50 || len(fast.all) < 50 {
			t.Errorf("the other one has %d states, and %d locks", len(fast.all), len(fast.rows))
		}
		slow.mu.Lock()
		if left := slow.deadline.Sub(time.Now().Add(-50 * every)); left <= 0 ||
			left > time.Minute {
			t.Errorf("it has %v for a piece", left)
		}
		slow.mu.Unlock()
		close(block)
		if slow.sees(); len(slow.rows) != 50 || len(slow.all) > 2 {
			t.Errorf("the slow one has %d states, and %d locks", len(slow.all), len(slow.rows))
		}
	})
}

// TestFewPages: further pages are refused, until one is closed.
func TestFewPages(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		var all []*viewer
		for range 32 {
			all = append(all, s.watch())
		}
		synctest.Wait()
		if code, text := s.ask(http.MethodGet, "/events", ""); code != 503 ||
			!strings.Contains(text, "32 pages") {
			t.Errorf("one more: %d, %s", code, text)
		}
		// A page cannot read why a stream was refused: it asks before it opens one.
		if code, text := s.ask(http.MethodGet, "/session", ""); code != 503 ||
			!strings.Contains(text, "32 pages watch already; close one") {
			t.Errorf("the session of one more: %d, %s", code, text)
		}
		all[0].leave()
		<-all[0].left
		if code, text := s.ask(http.MethodGet, "/session", ""); code != 204 {
			t.Errorf("there is room for one: %d, %s", code, text)
		}
		if v := s.watch().sees(); len(v.all) == 0 {
			t.Error("there is no room, and one has gone")
		}
	})
}

// TestSilentBackend: a backend that hangs is an error on the page in time, with what was seen
// before; and the page recovers.
func TestSilentBackend(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		nightly, report := s.take("nightly", "h1", 71, "backup"), s.take("report", "h2", 88, "")
		v := s.watch().sees()
		s.free(report)
		time.Sleep(every)
		good := v.sees().last.Good
		thaw := s.backend.freeze()
		time.Sleep(every + patience/2)
		v.mu.Lock()
		text := v.text.String()
		v.mu.Unlock()
		if !strings.Contains(text, "event: beat") ||
			!strings.Contains(text, fmt.Sprintf(`"asking":%d`, good+every.Milliseconds())) {
			t.Errorf("the page is not told that the backend was asked: %q", text)
		}
		time.Sleep(patience/2 + time.Second)
		if v.sees(); v.last.Trouble != "no answer within 15s" || v.last.Good != good ||
			len(v.rows) != 1 {
			t.Errorf("while it hangs: %q, %+v", v.shows(), v.last)
		}
		if late := s.watch().sees(); late.last.Trouble == "" || len(late.rows) != 1 ||
			len(late.last.Ended) != 1 {
			t.Errorf("who comes later sees %+v", late.last)
		}
		s.free(nightly)
		thaw()
		time.Sleep(every + patience)
		if v.sees(); v.last.Trouble != "" || len(v.rows) != 0 || len(v.last.Blind) != 1 {
			t.Errorf("afterwards: %q, %+v", v.shows(), v.last)
		}
	})
}

// TestSilentForLong: a backend that hangs whatever the context says is not given ever more calls to
// keep, however long a page watches; and the page recovers.
//
// Fails if the code is broken like this: calls.begin returns nil.
func TestSilentForLong(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		v := s.watch().sees()
		thaw := s.backend.freeze()
		time.Sleep(30 * time.Minute)
		v.sees()
		n, checks := s.backend.most.Load(), s.backend.checks.Load()
		if n+checks > 66 || !strings.Contains(v.last.Trouble, "64 calls have not returned") {
			t.Errorf("%d lists at once, %d checks; the page says %q", n, checks, v.last.Trouble)
		}
		thaw()
		s.take("nightly", "h1", 71, "backup")
		time.Sleep(2*every + patience)
		if v.sees(); v.last.Trouble != "" || len(v.rows) != 1 {
			t.Errorf("afterwards: %q, %+v", v.shows(), v.last)
		}
	})
}

// TestSilentFromTheBegin: a backend that has never answered is an error as well.
func TestSilentFromTheBegin(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		thaw := s.backend.freeze()
		v := s.watch()
		time.Sleep(patience + time.Second)
		if v.sees(); v.last.Trouble == "" || v.last.Good != 0 || !v.last.Full {
			t.Errorf("%+v", v.last)
		}
		s.take("nightly", "h1", 71, "backup")
		thaw()
		time.Sleep(every + patience)
		if v.sees(); v.last.Trouble != "" || len(v.rows) != 1 || len(v.last.Ended) != 0 {
			t.Errorf("%q, %+v", v.shows(), v.last)
		}
	})
}

// TestNoSecrets: errors and findings are shown without what is secret, in printable text.
func TestNoSecrets(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		v := s.watch()
		time.Sleep(2 * every)
		v.sees()
		if f := v.last.Findings; len(f) != 1 || f[0].Summary != "It is redis://u:...@h1." ||
			f[0].Advice != "Add some." || f[0].Severity != "warning" || f[0].Code != "few" {
			t.Errorf("findings: %+v", f)
		}
		s.backend.mu.Lock()
		s.backend.fails = errDown
		s.backend.mu.Unlock()
		time.Sleep(time.Minute)
		v.sees()
		if want := "redis://u:...@h1: down"; v.last.Trouble != want || v.last.CheckTrouble != want {
			t.Errorf("trouble: %q, %q", v.last.Trouble, v.last.CheckTrouble)
		}
		_, text := s.ask(http.MethodGet, "/lock?id="+idOf("x"), "")
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "down") {
			t.Errorf("one lock: %s", text)
		}
	})
}

// TestOtherPeoplesText: whatever a key or label is, the page gets printable text, in one line.
func TestOtherPeoplesText(t *testing.T) {
	const script = `<script>alert(1)</script>`
	nasty := []string{script, "\x1b[2J", "a\nb\n\ndata: x", "\u202egnp.exe", "\xff\xfe",
		"</script><img src=x onerror=alert(1)>", "event: state", strings.Repeat("x", 900), "\u2028"}
	inBubble(t, nil, func(t *testing.T, s *site) {
		for i, text := range nasty {
			s.take(text, "h1", 71+i, text[:min(len(text), 100)])
		}
		foreign := driver.Claim{Key: prefix + "foreign", TTL: time.Hour,
			Owner: "redis://u:secret@h " + strings.Repeat("<b>", 1000)}
		s.acquire(foreign, driver.Held)
		v := s.watch()
		synctest.Wait()
		text := v.text.String()
		v.sees()
		if len(v.rows) != len(nasty)+1 || strings.Contains(text, "secret") {
			t.Errorf("%d locks: %q", len(v.rows), v.shows())
		}
		if _, ok := v.rows[script]; !ok {
			t.Errorf("no row of that name: %q", v.shows())
		}
		for _, r := range v.rows {
			if n := len([]rune(r.Name)); n > 161 {
				t.Errorf("a name of %d characters", n)
			}
		}
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && !unicode.IsPrint(r)
		}); i >= 0 {
			t.Errorf("byte %d of %.200q is not printable", i, text[i:])
		}
		if strings.Count(text, "\n") != 3 {
			t.Errorf("not one event: %q", text)
		}
	})
}

// TestManyLocks: a bounded number is shown, and the page is told that there are more. A lock that
// is not shown any more has not ended.
func TestManyLocks(t *testing.T) {
	few := func(o *board.Options) { o.Most = 100 }
	inBubble(t, few, func(t *testing.T, s *site) {
		for i := range 100 {
			s.take(fmt.Sprintf("%05d", 100+i), "h1", 71, "x")
		}
		v := s.watch().sees()
		if len(v.rows) != 100 || v.last.More {
			t.Errorf("%d locks, and more: %v", len(v.rows), v.last.More)
		}
		for i := range 50 { // they come first
			s.take(fmt.Sprintf("%05d", i), "h1", 71, "x")
		}
		time.Sleep(every)
		v.sees()
		if len(v.rows) != 100 || !v.last.More || len(v.last.Gone) != 50 {
			t.Errorf("%d locks, %d gone, and more: %v", len(v.rows), len(v.last.Gone),
				v.last.More)
		}
		time.Sleep(3 * every)
		for _, m := range v.sees().all {
			if len(m.Ended) > 0 {
				t.Fatalf("%d have ended: %+v", len(m.Ended), m.Ended[0])
			}
		}
	})
}

// TestManyWhoShare: of many holders that share a lock, the row has four and their number. One that
// is not in the row any more may still hold it.
func TestManyWhoShare(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		var all []driver.Claim
		for i := range 6 {
			c := claim("nightly", "h1", 71+i, "")
			c.Shared, c.TTL = true, c.TTL+time.Duration(i)*time.Minute
			all = append(all, s.acquire(c, driver.Held))
		}
		v := s.watch().sees()
		if r := v.rows["nightly"]; r.Held != 6 || len(r.Holders) != 4 || r.Holders[3].PID != 76 {
			t.Errorf("shows %+v", r)
		}
		s.free(all[5])
		time.Sleep(every)
		if r := v.sees().rows["nightly"]; r.Held != 5 || len(v.last.Ended) != 0 {
			t.Errorf("shows %+v, ended %+v", r, v.last.Ended)
		}
		s.free(all[0])
		time.Sleep(every)
		v.sees()
		s.free(all[1])
		time.Sleep(every)
		if r := v.sees().rows["nightly"]; r.Held != 3 || len(v.last.Ended) != 1 ||
			v.last.Ended[0].By.PID != 72 {
			t.Errorf("shows %+v, ended %+v", r, v.last.Ended)
		}
	})
}

// TestLongPast: a page that comes late gets the last thousand holds that have ended, and the time
// since when the board has seen them.
func TestLongPast(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		v := s.watch().sees()
		begin := time.Now()
		for _, n := range []int{510, 510} {
			var all []driver.Claim
			for i := range n {
				all = append(all, s.take(fmt.Sprint(i), "h1", 71, "x"))
			}
			time.Sleep(every)
			v.sees()
			for _, c := range all {
				s.free(c)
			}
			time.Sleep(every)
			if v.sees(); len(v.last.Ended) != n {
				t.Errorf("%d have ended, want %d", len(v.last.Ended), n)
			}
		}
		if late := s.watch().sees(); len(late.last.Ended) != 1000 ||
			late.last.First != begin.UnixMilli() {
			t.Errorf("%d have ended since %d, want 1000 since %d", len(late.last.Ended),
				late.last.First, begin.UnixMilli())
		}
	})
}

// TestUnsteadyLease: that two looks compute the end of a lease a little differently is no change.
func TestUnsteadyLease(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		s.backend.mu.Lock()
		s.backend.unsteady = time.Second
		s.backend.mu.Unlock()
		v := s.watch().sees()
		for range 10 {
			time.Sleep(every)
		}
		for _, m := range v.sees().all[1:] {
			if len(m.Rows) > 0 {
				t.Errorf("sent again: %+v", m.Rows)
			}
		}
	})
}

// TestFindingsTwiceAMinute: the servers are examined much less often than they are looked at.
func TestFindingsTwiceAMinute(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.watch()
		time.Sleep(2*time.Minute - time.Second)
		if n := s.backend.checks.Load(); n != 4 {
			t.Errorf("examined %d times in two minutes", n)
		}
	})
}

// TestPrefix: only what begins so is shown, also to whom asks for one lock.
func TestPrefix(t *testing.T) {
	inBubble(t, func(o *board.Options) { o.Begins = "a/" }, func(t *testing.T, s *site) {
		s.take("a/1", "h1", 71, "x")
		s.take("b/1", "h1", 71, "x")
		v := s.watch().sees()
		if names := slices.Collect(maps.Keys(v.rows)); !slices.Equal(names, []string{"a/1"}) {
			t.Errorf("shows %q", names)
		}
		for id, want := range map[string]int{idOf("a/1"): 200, idOf("b/1"): 400, "": 400,
			"!": 400, idOf("a/" + strings.Repeat("x", 2000)): 400} {
			if code, text := s.ask(http.MethodGet, "/lock?id="+id, ""); code != want {
				t.Errorf("%.20q: %d, %s", id, code, text)
			}
		}
	})
}
