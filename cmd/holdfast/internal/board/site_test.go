package board_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

const (
	every    = 2 * time.Second
	patience = 15 * time.Second
	prefix   = "lock:"
	token    = "0123456789abcdef"
)

// site is a board over locks in memory.
type site struct {
	t       *testing.T
	board   *board.Board
	backend *backend

	mu     sync.Mutex
	logged []string
}

// logs is what was logged.
func (s *site) logs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logged)
}

// backend counts the looks at it. If told to, it hangs, whatever the context says.
type backend struct {
	*memhold.Backend
	lists, inspects, together, most, checks atomic.Int64

	releases func() error // not nil: called before a release; set before there is one

	mu    sync.Mutex
	hang  chan struct{} // not nil: it hangs until that is closed
	fails error
	pause time.Duration // before each key of a list

	unsteady time.Duration // by which every other answer has a shorter lease
}

// Release releases.
func (b *backend) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if b.releases != nil {
		if err := b.releases(); err != nil {
			return driver.Result{}, err
		}
	}
	return b.Backend.Release(ctx, c)
}

// List lists, one at a time or not.
func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		b.lists.Add(1)
		b.most.Store(max(b.most.Load(), b.together.Add(1)))
		defer b.together.Add(-1)
		if err := b.trouble(); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		b.mu.Lock()
		pause := b.pause
		b.mu.Unlock()
		b.Backend.List(ctx, prefix)(func(e driver.Entry, err error) bool {
			time.Sleep(pause)
			return yield(e, err)
		})
	}
}

// Inspect inspects.
func (b *backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	b.inspects.Add(1)
	if err := b.trouble(); err != nil {
		return driver.Entry{}, err
	}
	e, err := b.Backend.Inspect(ctx, key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inspects.Load()%2 == 0 {
		e.Holder.ExpiresIn -= min(e.Holder.ExpiresIn, b.unsteady)
	}
	return e, err
}

// Check finds something with a password in it.
func (b *backend) Check(context.Context) ([]driver.Finding, error) {
	b.checks.Add(1)
	return []driver.Finding{{Severity: driver.Warning, Code: "few", Node: "n1",
		Summary: "It is redis://u:hunter2@h1.", Advice: "Add\nsome."}}, b.trouble()
}

func (b *backend) trouble() error {
	b.mu.Lock()
	hang, fails := b.hang, b.fails
	b.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return fails
}

// freeze has the backend hang until thaw is called.
func (b *backend) freeze() (thaw func()) {
	hang := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hang = hang
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hang = nil
		close(hang)
	}
}

// inBubble runs a test on a board in a bubble of fake time, where Run is at work.
func inBubble(t *testing.T, with func(*board.Options), f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, with)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			s.board.Run(ctx)
			close(done)
		}()
		defer func() {
			cancel()
			<-done
			// Answers that were kept for a moment are forgotten.
			time.Sleep(time.Minute)
		}()
		f(t, s)
	})
}

func newSite(t *testing.T, with func(*board.Options)) *site {
	t.Helper()
	s := &site{t: t, backend: &backend{Backend: memhold.New()}}
	t.Cleanup(func() { s.backend.Close() })
	o := board.Options{
		View:    &look.View{Backend: s.backend, Prefix: prefix, Patience: patience},
		Backend: s.backend, Title: "memory", Every: every,
		Hide: func(text string) string { return strings.ReplaceAll(text, "hunter2", "...") },
		Log: func(f string, args ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logged = append(s.logged, fmt.Sprintf(f, args...))
		},
	}
	if with != nil {
		with(&o)
	}
	s.board = board.New(o)
	return s
}

// claim is what a process asks for.
func claim(key, host string, pid int, label string) driver.Claim {
	return driver.Claim{Key: prefix + key, TTL: time.Hour,
		Owner: driver.NewOwner(fmt.Sprintf("/%s/%d/%s", host, pid, label))}
}

// take takes a lock.
func (s *site) take(key, host string, pid int, label string) driver.Claim {
	s.t.Helper()
	return s.acquire(claim(key, host, pid, label), driver.Held)
}

// want waits for a lock.
func (s *site) want(key, host string, pid int, label string) driver.Claim {
	s.t.Helper()
	c := claim(key, host, pid, label)
	c.Queue = true
	return s.acquire(c, driver.Busy)
}

func (s *site) acquire(c driver.Claim, state driver.State) driver.Claim {
	s.t.Helper()
	c.Token = driver.Token(time.Now().UnixMicro())
	r, err := s.backend.Acquire(s.t.Context(), c)
	if err != nil || r.State != state {
		s.t.Fatalf("%q: %v, %v; want %v", c.Key, r.State, err, state)
	}
	return c
}

func (s *site) free(c driver.Claim) {
	s.t.Helper()
	if r, err := s.backend.Release(s.t.Context(), c); err != nil || r.State != driver.Held {
		s.t.Fatal(r.State, err)
	}
}

// The shapes of what the page gets.
type (
	message struct {
		Full         bool
		Now, Good    int64
		First        int64
		Trouble      string
		More         bool
		Rows         []row
		Gone         []string
		Ended        []ended
		Blind        []struct{ From, Until int64 }
		Waits        waits
		Need         int
		Nodes        []struct{ Name, State, Trouble string }
		Findings     []struct{ Severity, Code, Summary, Advice string }
		CheckTrouble string `json:"check_trouble"`
		Title        string
		Release      bool
	}
	row struct {
		ID, Name, Kind string
		Held, Waiting  int
		Holders        []party
		Leaks          []string
	}
	party struct {
		ID, Who, Host, Token string
		PID                  int
		Since, Seen, Ends    int64
		Is, Will             string
	}
	ended struct {
		Key, Name string
		By        party
		Until     int64
		About     bool
	}
	waits struct {
		Processes []struct{ ID, Who string }
		Waits     []struct {
			Key, Name string
			To, From  []string
			More      int
		}
		Cycles []struct {
			Text  string
			Steps []struct{ From, To, Name string }
		}
		Hidden int
	}
)

// viewer is a browser that follows the events. In a bubble, what it has got is complete after
// synctest.Wait.
type viewer struct {
	t      *testing.T
	header http.Header
	leave  context.CancelFunc
	left   chan struct{}
	block  chan struct{} // not nil: it takes nothing until that is closed
	rate   int           // not 0: how many bytes it takes in a second

	mu       sync.Mutex
	code     int
	text     bytes.Buffer
	deadline time.Time

	rows map[string]row
	last message
	all  []message
}

// watch has a viewer come.
func (s *site) watch(change ...func(*viewer, *http.Request)) *viewer {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	v := &viewer{t: s.t, header: make(http.Header), leave: cancel, left: make(chan struct{}),
		rows: make(map[string]row)}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8420/events", nil)
	for _, f := range change {
		f(v, r)
	}
	go func() {
		defer close(v.left)
		s.board.ServeHTTP(v, r)
	}()
	s.t.Cleanup(cancel)
	return v
}

// Header returns the header.
func (v *viewer) Header() http.Header { return v.header }

// WriteHeader notes the code.
func (v *viewer) WriteHeader(code int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.code = code
}

// Write takes a text, if the viewer takes any.
func (v *viewer) Write(text []byte) (int, error) {
	if v.block != nil {
		<-v.block
	}
	if v.rate > 0 {
		v.mu.Lock()
		left := time.Until(v.deadline)
		v.mu.Unlock()
		takes := time.Duration(len(text)) * time.Second / time.Duration(v.rate)
		if time.Sleep(min(takes, left)); takes > left {
			return 0, os.ErrDeadlineExceeded
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(text)
}

// Flush does nothing.
func (v *viewer) Flush() {}

// SetReadDeadline does nothing.
func (v *viewer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline notes until when a text has to be taken.
func (v *viewer) SetWriteDeadline(at time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deadline = at
	return nil
}

// sees waits until nothing goes on, and takes what has come.
func (v *viewer) sees() *viewer {
	v.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	text := v.text.String()
	v.text.Reset()
	v.mu.Unlock()
	v.reads(text)
	return v
}

// reads takes events.
func (v *viewer) reads(text string) {
	v.t.Helper()
	for event := range strings.SplitSeq(text, "\n\n") {
		if data, ok := strings.CutPrefix(event, "event: state\ndata: "); ok {
			v.takes(data)
		}
	}
}

func (v *viewer) takes(data string) {
	v.t.Helper()
	var m message
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		v.t.Fatalf("%v: %s", err, data)
	}
	if m.Full {
		clear(v.rows)
	}
	for _, r := range m.Rows {
		v.rows[r.Name] = r
	}
	for _, id := range m.Gone {
		for name, r := range v.rows {
			if r.ID == id {
				delete(v.rows, name)
			}
		}
	}
	v.last = m
	v.all = append(v.all, m)
}

// shows says what the rows are, in one line each.
func (v *viewer) shows() map[string]string {
	lines := make(map[string]string)
	for name, r := range v.rows {
		text := fmt.Sprintf("%d wait", r.Waiting)
		for _, h := range r.Holders {
			text = fmt.Sprintf("%s %s %d, %s", h.Who, h.Host, h.PID, text)
		}
		lines[name] = text
	}
	return lines
}

// ask sends a request, and returns the answer.
func (s *site) ask(method, path, body string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	code, text, _ := s.askAll(method, path, body, change...)
	return code, text
}

func (s *site) askAll(method, path, body string, change ...func(*http.Request)) (int, string,
	http.Header) {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://127.0.0.1:8420"+path,
		reader)
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://127.0.0.1:8420")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Holdfast-Board", "1")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.board.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Result().Header
}

var errDown = errors.New("redis://u:hunter2@h1: down")
