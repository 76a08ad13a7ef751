package board_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/driver"
)

// idOf is how the page names a lock.
func idOf(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(prefix + name)) }

// one is all that is known of one lock.
type one struct {
	Name, Key, Trouble string
	Held, Waiting      int
	Holders, Waiters   []party
}

func (s *site) one(name string) (d one) {
	s.t.Helper()
	code, text := s.ask(http.MethodGet, "/lock?id="+idOf(name), "", known)
	if err := json.Unmarshal([]byte(text), &d); err != nil || code != 200 {
		s.t.Fatalf("%q: %d, %v: %s", name, code, err, text)
	}
	return d
}

// TestOneLock: of one lock there is every waiter in order, and what freeing it would do.
func TestOneLock(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		for i := range 3 {
			s.want("nightly", "h2", 80+i, fmt.Sprint("w", i))
		}
		d := s.one("nightly")
		var waiters []string
		for _, w := range d.Waiters {
			waiters = append(waiters, w.Who)
		}
		if d.Name != "nightly" || d.Key != prefix+"nightly" || len(d.Holders) != 1 ||
			!slices.Equal(waiters, []string{"w0", "w1", "w2"}) || d.Waiting != 3 {
			t.Errorf("%+v", d)
		}
		h := d.Holders[0]
		if h.Who != "backup" || h.PID != 71 || h.Token == "" || h.Ends == 0 ||
			!strings.Contains(h.Is, "nightly is held by backup (pid 71 on h1)") ||
			!strings.Contains(h.Will, "does not stop that holder") {
			t.Errorf("%+v", h)
		}
	})
}

// TestOneLockIsAskedOnce: however many pages show a lock, the backend is asked once a second.
func TestOneLockIsAskedOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		thaw := s.backend.freeze()
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { s.one("nightly") })
		}
		synctest.Wait()
		thaw()
		work.Wait()
		s.one("nightly")
		if n := s.backend.inspects.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		s.one("nightly")
		if n := s.backend.inspects.Load(); n != 2 {
			t.Errorf("asked %d times a second later", n)
		}
	})
}

// TestFewLocksAtOnce: at most four single locks are asked for at a time, and of too many that are
// wanted some are refused.
func TestFewLocksAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		thaw := s.backend.freeze()
		var work sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for i := range 300 {
			work.Go(func() {
				code, _ := s.ask(http.MethodGet, "/lock?id="+idOf(fmt.Sprint(i)), "")
				mu.Lock()
				defer mu.Unlock()
				if code == 503 {
					refused++
				}
			})
		}
		synctest.Wait()
		if n := s.backend.inspects.Load(); n != 4 {
			t.Errorf("%d locks are asked for at once", n)
		}
		thaw()
		work.Wait()
		if refused != 300-256 {
			t.Errorf("%d of 300 were refused", refused)
		}
	})
}

// TestDeadlock: processes that wait for each other are shown with their locks, and a long queue in
// a few.
func TestDeadlock(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("accounts", "h1", 71, "backup")
		s.take("ledger", "h2", 88, "report")
		s.want("accounts", "h2", 88, "report")
		s.want("ledger", "h1", 71, "backup")
		for i := range 100 {
			s.want("ledger", "h3", 100+i, "queue")
		}
		s.take("free", "h4", 5, "")
		v := s.watch().sees()
		w := v.last.Waits
		if len(w.Cycles) != 1 || len(w.Cycles[0].Steps) != 2 ||
			!strings.Contains(w.Cycles[0].Text, "backup (pid 71 on h1) holds accounts and waits "+
				"for ledger") {
			t.Fatalf("%+v", w.Cycles)
		}
		if len(w.Waits) != 2 || w.Waits[0].Name != "ledger" || w.Waits[0].More != 98 ||
			!slices.Equal(w.Waits[0].To, []string{"h2 88"}) || len(w.Waits[0].From) != 3 ||
			!slices.Equal(w.Waits[1].From, []string{"h2 88"}) || len(w.Processes) != 4 {
			t.Errorf("%+v", w)
		}
	})
}

// TestManyQueues: of many locks that are waited for, those that say most are drawn, and it is said
// how many are not.
func TestManyQueues(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		for i := range 100 {
			s.take(fmt.Sprint("q", i), "h1", 1000+i, "")
			s.want(fmt.Sprint("q", i), "h2", 2000+i, "")
		}
		s.take("a", "h3", 1, "")
		s.want("a", "h3", 2, "")
		s.take("b", "h3", 2, "")
		s.want("b", "h3", 3, "")
		w := s.watch().sees().last.Waits
		if len(w.Waits) != 40 || w.Hidden != 62 || w.Waits[0].Name != "a" {
			t.Errorf("%d are drawn, the first %+v, and %d are not", len(w.Waits), w.Waits[0],
				w.Hidden)
		}
	})
}

// freeable is a board that frees locks.
func freeable(o *board.Options) { o.Release, o.Token = true, token }

// TestRelease: a lock is freed while exactly the acquisition holds it that was shown, by its
// token; and it is logged.
func TestRelease(t *testing.T) {
	inBubble(t, freeable, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		next := s.want("nightly", "h2", 88, "next")
		h := s.one("nightly").Holders[0]
		body := fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), h.ID, h.Token)
		code, text := s.ask(http.MethodPost, "/release", body, known)
		if code != 200 || !strings.Contains(text,
			"freed nightly, which backup (pid 71 on h1) held; now it is held by next") {
			t.Errorf("%d, %s", code, text)
		}
		if logged := s.logs(); len(logged) != 1 || !strings.Contains(logged[0], "freed nightly") {
			t.Errorf("logged %q", logged)
		}
		if got := s.one("nightly").Holders[0].Who; got != "next" {
			t.Errorf("held by %s", got)
		}
		code, text = s.ask(http.MethodPost, "/release", body, known)
		if code != 409 || !strings.Contains(text, "nothing was freed") {
			t.Errorf("once more: %d, %s", code, text)
		}
		s.free(next)
	})
}

// TestReleaseIsShownSoon: the pages do not wait for the next look.
func TestReleaseIsShownSoon(t *testing.T) {
	slowly := func(o *board.Options) {
		freeable(o)
		o.Every = time.Hour
	}
	inBubble(t, slowly, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		v := s.watch(func(_ *viewer, r *http.Request) { known(r) }).sees()
		h := s.one("nightly").Holders[0]
		s.ask(http.MethodPost, "/release", fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`,
			idOf("nightly"), h.ID, h.Token), known)
		if v.sees(); len(v.rows) != 0 {
			t.Errorf("shows %q", v.shows())
		}
	})
}

// TestReleaseOfNobodyElse: nothing is freed without the right token and holder, without the login,
// by another site, or by a board that may only look.
func TestReleaseOfNobodyElse(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	inBubble(t, freeable, func(t *testing.T, s *site) {
		c := s.take("nightly", "h1", 71, "backup")
		s.want("nightly", "h2", 88, "next")
		d := s.one("nightly")
		h, w := d.Holders[0], d.Waiters[0]
		body := func(holder, token string) string {
			return fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), holder, token)
		}
		right := body(h.ID, h.Token)
		for what, test := range map[string]struct {
			body   string
			code   int
			change func(*http.Request)
		}{
			"no token":        {body(h.ID, ""), 409, known},
			"another token":   {body(h.ID, "17"), 409, known},
			"no number":       {body(h.ID, "x"), 400, known},
			"zero":            {body(h.ID, "0"), 400, known},
			"a waiter":        {body(w.ID, h.Token), 409, known},
			"no holder":       {body("", h.Token), 400, known},
			"another lock":    {strings.Replace(right, idOf("nightly"), idOf("x"), 1), 409, known},
			"no lock":         {strings.Replace(right, idOf("nightly"), "", 1), 400, known},
			"no login":        {right, 401, func(*http.Request) {}},
			"a wrong login":   {right, 401, set("Cookie", "holdfast-board="+token)},
			"no header":       {right, 403, with(known, set("Holdfast-Board", ""))},
			"no origin":       {right, 403, with(known, set("Origin", ""))},
			"another site":    {right, 403, with(known, set("Origin", "http://evil.example"))},
			"another port":    {right, 403, with(known, set("Origin", "http://127.0.0.1:1"))},
			"an opaque one":   {right, 403, with(known, set("Origin", "null"))},
			"told by browser": {right, 403, with(known, set("Sec-Fetch-Site", "same-site"))},
			"a form":          {right, 415, with(known, set("Content-Type", "text/plain"))},
			"rebound": {right, 421, with(known, set("Origin", "http://evil.example"),
				func(r *http.Request) { r.Host = "evil.example" })},
			"no JSON":     {"x", 400, known},
			"more in it":  {`{"force":true,` + right[1:], 400, known},
			"more behind": {right + right, 400, known},
			"space":       {right + strings.Repeat(" ", 1<<20), 400, known},
			"too long":    {`{"id":"` + strings.Repeat("x", 1<<20) + `"}`, 400, known},
		} {
			code, text := s.ask(http.MethodPost, "/release", test.body, test.change)
			if code != test.code {
				t.Errorf("%s: %d, %s; want %d", what, code, text, test.code)
			}
		}
		if code, _ := s.ask(http.MethodGet, "/release", "", known); code != 405 {
			t.Errorf("GET: %d", code)
		}
		if r, err := s.backend.Renew(t.Context(), []driver.Claim{c}); err != nil ||
			r[0].State != driver.Held {
			t.Errorf("the lock is not held any more: %v, %v", r, err)
		}
	})
	inBubble(t, nil, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		h := s.one("nightly").Holders[0]
		code, text := s.ask(http.MethodPost, "/release", fmt.Sprintf(
			`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), h.ID, h.Token))
		if code != 403 || !strings.Contains(text, "--allow-release") {
			t.Errorf("who may only look: %d, %s", code, text)
		}
		if s.one("nightly").Held != 1 {
			t.Error("it was freed")
		}
	})
}

// TestReleaseOfOneWhoShares: of several holders that share a lock, exactly the one that was shown
// is freed, and not without its token.
func TestReleaseOfOneWhoShares(t *testing.T) {
	inBubble(t, freeable, func(t *testing.T, s *site) {
		for i := range 3 {
			c := claim("nightly", "h1", 71+i, "")
			c.Shared, c.TTL = true, c.TTL+time.Duration(i)*time.Minute
			s.acquire(c, driver.Held)
		}
		all := s.one("nightly").Holders
		if len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		body := func(token string) string {
			return fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), all[1].ID, token)
		}
		for _, other := range []string{"17", all[0].Token} {
			if code, text := s.ask(http.MethodPost, "/release", body(other), known); code != 409 {
				t.Errorf("by another token: %d, %s", code, text)
			}
		}
		if code, text := s.ask(http.MethodPost, "/release", body(all[1].Token),
			known); code != 200 {
			t.Errorf("%d, %s", code, text)
		}
		var left []int
		for _, h := range s.one("nightly").Holders {
			left = append(left, h.PID)
		}
		if !slices.Equal(left, []int{71, 73}) {
			t.Errorf("left are %v", left)
		}
	})
}

// TestFewReleasesAtOnce: at most four locks are freed at a time.
func TestFewReleasesAtOnce(t *testing.T) {
	inBubble(t, freeable, func(t *testing.T, s *site) {
		var bodies []string
		for i := range 5 {
			name := fmt.Sprint("n", i)
			s.take(name, "h1", 71, "")
			h := s.one(name).Holders[0]
			bodies = append(bodies, fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`, idOf(name),
				h.ID, h.Token))
		}
		hang := make(chan struct{})
		s.backend.releases = func() error {
			<-hang
			return nil
		}
		var work sync.WaitGroup
		for _, body := range bodies[:4] {
			work.Go(func() {
				if code, text := s.ask(http.MethodPost, "/release", body, known); code != 200 {
					t.Errorf("%d, %s", code, text)
				}
			})
		}
		synctest.Wait()
		if code, text := s.ask(http.MethodPost, "/release", bodies[4], known); code != 503 {
			t.Errorf("one more: %d, %s", code, text)
		}
		close(hang)
		work.Wait()
		if code, text := s.ask(http.MethodPost, "/release", bodies[4], known); code != 200 {
			t.Errorf("afterwards: %d, %s", code, text)
		}
	})
}

// TestReleaseOfASilentBackend: if nobody knows whether the lock was freed, the answer says so, in
// time.
func TestReleaseOfASilentBackend(t *testing.T) {
	inBubble(t, freeable, func(t *testing.T, s *site) {
		s.take("nightly", "h1", 71, "backup")
		h := s.one("nightly").Holders[0]
		thaw := s.backend.freeze()
		begin := time.Now()
		code, text := s.ask(http.MethodPost, "/release", fmt.Sprintf(
			`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), h.ID, h.Token), known)
		if code != 502 || !strings.Contains(text, "nothing was freed: no answer within 15s") {
			t.Errorf("%d, %s", code, text)
		}
		if took := time.Since(begin); took > patience+2*time.Second {
			t.Errorf("took %v", took)
		}
		thaw()
	})
}

// TestReleaseNeedsAToken: a board that frees locks for anybody cannot be made.
func TestReleaseNeedsAToken(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was made")
		}
	}()
	board.New(board.Options{Release: true})
}
