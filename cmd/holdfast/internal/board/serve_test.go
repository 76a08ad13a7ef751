package board_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/driver"
)

// pipes is a listener whose connections are in memory, so that their time is that of a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept waits for the next connection.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is that of no network.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// served is a board that answers connections, in a bubble.
type served struct {
	*site
	pipes *pipes
	end   context.CancelFunc // as a signal does
	done  chan struct{}      // closed when Serve has returned
}

// inServe runs a test on a board that answers connections, in a bubble of fake time.
func inServe(t *testing.T, with func(*board.Options), f func(t *testing.T, s *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &served{site: newSite(t, with), end: cancel, done: make(chan struct{}),
			pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
		go func() {
			defer close(s.done)
			if err := s.board.Serve(ctx, s.pipes); err != nil {
				t.Error(err)
			}
		}()
		defer func() {
			cancel()
			<-s.done
			// Answers that were kept for a moment are forgotten, and calls that hang are back.
			time.Sleep(time.Minute)
		}()
		f(t, s)
	})
}

// dial connects to the board. The connection is closed at the end of the test.
func (s *served) dial() net.Conn {
	s.t.Helper()
	ours, theirs := net.Pipe()
	s.pipes.conns <- theirs
	s.t.Cleanup(func() { ours.Close() })
	return ours
}

// sends writes a request with all that a page sends.
func (s *served) sends(c net.Conn, method, path, headers, body string) {
	s.t.Helper()
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1:8420\r\n%s\r\n%s", method, path,
		headers, body)
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
}

// changes are the headers of a request that changes something, with a body of that length.
func changes(length int) string {
	return fmt.Sprintf("Origin: http://127.0.0.1:8420\r\nContent-Type: application/json\r\n"+
		"Holdfast-Board: 1\r\nContent-Length: %d\r\n", length)
}

// TestBodyThatDoesNotEnd: a client that announces more than it sends does not keep a connection. A
// request has ten seconds, also for what is behind the JSON that was expected.
func TestBodyThatDoesNotEnd(t *testing.T) {
	asks := func(o *board.Options) { o.Token = token }
	inServe(t, asks, func(t *testing.T, s *served) {
		for _, body := range []string{`{"token":"` + token + `"}`, `{"token":"x"}`, `{`, ""} {
			begin := time.Now()
			c := s.dial()
			s.sends(c, http.MethodPost, "/login", changes(len(body)+100), body)
			if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
				t.Errorf("%q: %q, %v", body, answer, err)
			}
			if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("%q: took %v, want 10s", body, took)
			}
		}
	})
}

// TestHead: a request for the head of the stream gets only that, and does not count as a page.
func TestHead(t *testing.T) {
	inServe(t, nil, func(t *testing.T, s *served) {
		c := s.dial()
		lines := bufio.NewReader(c)
		for _, path := range []string{"/events", "/session", "/events"} {
			s.sends(c, http.MethodHead, path, "", "")
			answer, err := http.ReadResponse(lines, &http.Request{Method: http.MethodHead})
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			answer.Body.Close()
			if kind := answer.Header.Get("Content-Type"); path == "/events" &&
				(kind != "text/event-stream" || answer.StatusCode != 200) {
				t.Errorf("%s: %s, %s", path, answer.Status, kind)
			}
		}
		synctest.Wait()
		if n := s.backend.lists.Load(); n != 0 {
			t.Errorf("%d looks for nobody", n)
		}
	})
}

// TestPageThatGoes: when the connection of a page breaks, nobody looks for it any more, and its
// place is free.
func TestPageThatGoes(t *testing.T) {
	inServe(t, nil, func(t *testing.T, s *served) {
		for range 140 { // more than there are places, and more than there are connections
			c := s.dial()
			s.sends(c, http.MethodGet, "/events", "", "")
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(answer, err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(every + time.Second)
		}
		n := s.backend.lists.Load()
		time.Sleep(time.Hour)
		if again := s.backend.lists.Load(); again != n {
			t.Errorf("%d looks without a page", again-n)
		}
	})
}

// TestEndWithOpenStreams: a board that is ended does not wait for pages, nor for longer than a
// moment for a backend that hangs.
func TestEndWithOpenStreams(t *testing.T) {
	inServe(t, nil, func(t *testing.T, s *served) {
		s.take("nightly", "h1", 71, "backup")
		var all sync.WaitGroup
		for range 20 {
			c := s.dial()
			s.sends(c, http.MethodGet, "/events", "", "")
			all.Go(func() { _, _ = io.Copy(io.Discard, c) })
		}
		time.Sleep(time.Minute)
		c := s.dial() // it does not read
		s.sends(c, http.MethodGet, "/events", "", "")
		thaw := s.backend.freeze()
		defer thaw()
		time.Sleep(every + time.Second)
		begin := time.Now()
		s.end()
		<-s.done
		all.Wait()
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// releaseOf is the request that frees the lock, as the page sends it.
func (s *served) releaseOf(c net.Conn, name string) {
	s.t.Helper()
	h := s.one(name).Holders[0]
	body := fmt.Sprintf(`{"id":%q,"holder":%q,"token":%q}`, idOf(name), h.ID, h.Token)
	r := &http.Request{Header: make(http.Header)}
	known(r)
	s.sends(c, http.MethodPost, "/release",
		changes(len(body))+"Cookie: "+r.Header.Get("Cookie")+"\r\n", body)
}

// TestEndWhileALockIsFreed: what was begun is done, answered and logged before the board ends. If
// the backend does not answer, the log says what is not known.
func TestEndWhileALockIsFreed(t *testing.T) {
	for _, test := range []struct {
		answers  time.Duration
		ends     time.Duration
		log, say string
	}{
		{3 * time.Second, 3 * time.Second, "freed nightly, which backup", "freed nightly"},
		{time.Minute, 5 * time.Second, "nightly: the board was ended while", ""},
	} {
		inServe(t, freeable, func(t *testing.T, s *served) {
			s.take("nightly", "h1", 71, "backup")
			c := s.dial()
			answered := make(chan string, 1)
			s.backend.releases = func() error {
				// The backend has it, and answers late.
				time.Sleep(test.answers)
				return nil
			}
			s.releaseOf(c, "nightly")
			go func() {
				text, _ := io.ReadAll(c)
				answered <- string(text)
			}()
			next := s.dial() // it comes too late
			time.Sleep(time.Millisecond)
			begin := time.Now()
			s.end()
			synctest.Wait()
			s.releaseOf(next, "nightly")
			answer, err := http.ReadResponse(bufio.NewReader(next), nil)
			if err != nil || answer.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("when the board ends, it takes one more: %v, %v", answer, err)
			}
			<-s.done
			logged := strings.Join(s.logs(), "\n")
			took := time.Since(begin)
			if took < test.ends-time.Second || took > test.ends+time.Second {
				t.Errorf("the backend answers after %v: took %v", test.answers, took)
			}
			if !strings.Contains(logged, test.log) {
				t.Errorf("the backend answers after %v: logged %q", test.answers, logged)
			}
			if text := <-answered; !strings.Contains(text, test.say) {
				t.Errorf("the backend answers after %v: %q", test.answers, text)
			}
		})
	}
}

// TestSlowRelease: a release may take longer than a request has to come, and the connection is as
// good as before.
func TestSlowRelease(t *testing.T) {
	inServe(t, freeable, func(t *testing.T, s *served) {
		s.take("nightly", "h1", 71, "backup")
		c := s.dial()
		lines := bufio.NewReader(c)
		s.backend.releases = func() error {
			time.Sleep(12 * time.Second)
			return nil
		}
		s.releaseOf(c, "nightly")
		for _, want := range []int{200, 401} {
			answer, err := http.ReadResponse(lines, nil)
			if err != nil || answer.StatusCode != want {
				t.Fatalf("%v, %v; want %d", answer, err, want)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			if want == 200 {
				s.sends(c, http.MethodGet, "/session", "", "")
			}
		}
	})
}

// TestSlowLine: a page that reads slowly, but reads, is not dropped.
func TestSlowLine(t *testing.T) {
	rarely := func(o *board.Options) { o.Every = time.Hour }
	inBubble(t, rarely, func(t *testing.T, s *site) {
		for i := range 600 {
			s.take(fmt.Sprintf("%d%0100d", i, 0), "h1", 71, "x")
		}
		v := s.watch(func(v *viewer, _ *http.Request) { v.rate = 10_000 })
		time.Sleep(5 * time.Minute)
		v.mu.Lock()
		sent := v.text.Len()
		v.mu.Unlock()
		if v.sees(); len(v.rows) != 600 || sent < 250_000 {
			t.Errorf("%d locks in %d bytes", len(v.rows), sent)
		}
		stuck := s.watch(func(v *viewer, _ *http.Request) { v.rate = 100 })
		time.Sleep(5 * time.Minute)
		select {
		case <-stuck.left:
		default:
			t.Error("a page that takes nothing is not left")
		}
		v.leave()
		<-v.left
	})
}

// TestNobodyHasWatched: a page that comes after hours is not shown what was held then.
func TestNobodyHasWatched(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		c := claim("nightly", "h1", 71, "backup")
		c.TTL = 24 * time.Hour
		s.acquire(c, driver.Held)
		v := s.watch().sees()
		v.leave()
		<-v.left
		time.Sleep(time.Hour)
		s.free(c)
		thaw := s.backend.freeze()
		v = s.watch()
		time.Sleep(10 * time.Second)
		if v.sees(); len(v.all) > 0 {
			t.Errorf("before the first look it is shown %q", v.shows())
		}
		time.Sleep(patience)
		if v.sees(); len(v.all) != 1 || v.last.Trouble == "" || len(v.rows) != 1 {
			t.Errorf("of a backend that hangs it is shown %q, %+v", v.shows(), v.last)
		}
		thaw()
		time.Sleep(every + patience)
		if v.sees(); v.last.Trouble != "" || len(v.rows) != 0 {
			t.Errorf("in the end it is shown %q, %+v", v.shows(), v.last)
		}
	})
}

// TestLookThatTakesLong: it is said that all locks are too many for the time, and not that the
// backend has not answered.
func TestLookThatTakesLong(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		for i := range 20 {
			s.take(fmt.Sprint(i), "h1", 71, "x")
		}
		s.backend.mu.Lock()
		s.backend.pause = 10 * time.Second
		s.backend.mu.Unlock()
		v := s.watch()
		time.Sleep(2 * time.Minute)
		const want = "to look at all locks takes more than 1m0s; with a --timeout over 15s"
		if v.sees(); !strings.HasPrefix(v.last.Trouble, want) {
			t.Errorf("%q, want %q", v.last.Trouble, want)
		}
	})
}

// TestReleaseThatIsNotSeen: if the lock was not freed and cannot be looked at any more, it is not
// said that nobody holds it.
func TestReleaseThatIsNotSeen(t *testing.T) {
	inBubble(t, freeable, func(t *testing.T, s *site) {
		c := s.take("nightly", "h1", 71, "backup")
		h := s.one("nightly").Holders[0]
		s.backend.releases = func() error {
			if _, err := s.backend.Backend.Release(t.Context(), c); err != nil { // it was first
				return err
			}
			s.backend.mu.Lock()
			defer s.backend.mu.Unlock()
			s.backend.fails = errors.New("down")
			return nil
		}
		code, text := s.ask(http.MethodPost, "/release", fmt.Sprintf(
			`{"id":%q,"holder":%q,"token":%q}`, idOf("nightly"), h.ID, h.Token), known)
		if code != 409 || !strings.Contains(text, "who holds it is not known; nothing was freed") {
			t.Errorf("%d, %s", code, text)
		}
	})
}
