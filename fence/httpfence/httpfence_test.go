package httpfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// service keeps values.
type service struct {
	mu     sync.Mutex
	values map[string]string
	pauses sync.Map // by the value that is written
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if pause, ok := s.pauses.LoadAndDelete(string(value)); ok {
		pause.(func())()
	}
	if r.Context().Err() != nil {
		http.Error(w, "too late", http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[r.URL.Query().Get("r")] = string(value)
}

func (s *service) get(_ context.Context, resource string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[resource], nil
}

// direct is a transport without a network, so that it works in a bubble.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

func byQuery(r *http.Request) string { return r.URL.Query().Get("r") }

func harness(handler func(*service) http.Handler) fencetest.Harness {
	return fencetest.Harness{Bubble: true, NewStore: func(testing.TB) fencetest.Store {
		s := &service{values: make(map[string]string)}
		client := &http.Client{Transport: httpfence.Transport{Base: direct{handler(s)}}}
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				if pause != nil {
					s.pauses.Store(value, pause)
				}
				request, err := http.NewRequestWithContext(httpfence.WithToken(ctx,
					token), http.MethodPut,
					"http://service/?r="+url.QueryEscape(resource), strings.NewReader(value))
				if err != nil {
					return err
				}
				response, err := client.Do(request)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if err := httpfence.Check(response); err != nil {
					return err
				}
				if response.StatusCode != http.StatusOK {
					return errors.New(response.Status)
				}
				return nil
			},
			Read: s.get,
		}
	}}
}

func TestConformance(t *testing.T) {
	fencetest.Run(t, harness(func(s *service) http.Handler {
		return httpfence.Handler{Guard: new(fence.Register), Next: s, Resource: byQuery}
	}))
}

// early asks the guard first and serves later.
type early struct {
	guard fence.Register
	next  http.Handler
}

func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accepted := false
	httpfence.Handler{Guard: &e.guard, Resource: byQuery,
		Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			accepted = true
		})}.ServeHTTP(w, r)
	if accepted {
		e.next.ServeHTTP(w, r)
	}
}

func TestMutantThatServesAfterTheCheckIsFound(t *testing.T) {
	fencetest.Catches(t, harness(func(s *service) http.Handler {
		return &early{next: s}
	}), "Concurrency/OlderThatBeganFirst")
}

// guardFunc is a guard that fails.
type guardFunc func(write func() error) error

func (f guardFunc) Do(ctx context.Context, _ string, _ fence.Token,
	write func(context.Context) error) error {
	return f(func() error { return write(ctx) })
}

func TestAnswersOverANetwork(t *testing.T) {
	secret := errors.New("password in here")
	var told []error
	var guard fence.Guard = new(fence.Register)
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpfence.Handler{
			Guard: guard, Failed: func(_ *http.Request, err error) { told = append(told, err) },
			Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served++
				w.Header().Set("X-Served", "yes")
				if r.URL.Query().Has("fail") {
					w.WriteHeader(http.StatusConflict)
				}
				fmt.Fprint(w, "body")
			}),
		}.ServeHTTP(w, r)
	}))
	defer server.Close()

	for _, c := range []struct {
		name, method, path string
		tokens             []string
		guard              fence.Guard
		status             int
		problem            string // the end of its type; "" for an answer of the service
		is                 error
	}{
		{name: "reads need none", method: "GET", path: "/a", status: 200},
		{name: "none", method: "PUT", path: "/a", status: 428, problem: "#missing-token",
			is: fence.ErrInvalid},
		{name: "first", method: "PUT", path: "/a", tokens: []string{"5"}, status: 200},
		{name: "older", method: "PUT", path: "/a", tokens: []string{"4"}, status: 412,
			problem: "#stale-token", is: fence.ErrStale},
		{name: "older, deletes", method: "DELETE", path: "/a", tokens: []string{"4"}, status: 412,
			problem: "#stale-token", is: fence.ErrStale},
		{name: "another resource", method: "POST", path: "/b", tokens: []string{"4"}, status: 200},
		{name: "the service's own error", method: "PUT", path: "/a?fail", tokens: []string{"5"},
			status: 409},
		{name: "no number", method: "PUT", path: "/a", tokens: []string{"x"}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "empty", method: "PUT", path: "/a", tokens: []string{""}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "a sign", method: "PUT", path: "/a", tokens: []string{"+9"}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "a list", method: "PUT", path: "/a", tokens: []string{"9, 9"}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "two", method: "PUT", path: "/a", tokens: []string{"9", "9"}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "zero", method: "PUT", path: "/a", tokens: []string{"0"}, status: 400,
			problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "too large", method: "PUT", path: "/a", tokens: []string{"9007199254740993"},
			status: 400, problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "far too large", method: "PUT", path: "/a", tokens: []string{"99999999999999999999"},
			status: 400, problem: "#invalid-token", is: fence.ErrInvalid},
		{name: "guard fails", method: "PUT", path: "/a", tokens: []string{"9"}, status: 503,
			problem: "#unavailable", is: fence.ErrUnavailable,
			guard: guardFunc(func(func() error) error { return secret })},
		{name: "guard does not know", method: "PUT", path: "/a", tokens: []string{"9"}, status: 500,
			problem: "#outcome-unknown", is: fence.ErrUnknown,
			guard: guardFunc(func(write func() error) error {
				write()
				return fmt.Errorf("%w: %w", fence.ErrUnknown, secret)
			})},
		{name: "guard knows nothing", method: "PUT", path: "/a", tokens: []string{"9"}, status: 404,
			problem: "#not-found", is: fence.ErrNotFound,
			guard: guardFunc(func(func() error) error { return fence.ErrNotFound })},
		{name: "and still", method: "PUT", path: "/a", tokens: []string{"5"}, status: 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			register := guard
			defer func() { guard = register }()
			if c.guard != nil {
				guard = c.guard
			}
			before := served
			request, err := http.NewRequestWithContext(t.Context(), c.method,
				server.URL+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header["Fencing-Token"] = c.tokens
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != c.status {
				t.Errorf("status %d; want %d", response.StatusCode, c.status)
			}
			response.Body = io.NopCloser(bytes.NewReader(body))
			if err := httpfence.Check(response); !errors.Is(err, c.is) || c.is == nil &&
				err != nil {
				t.Errorf("Check = %v; want %v", err, c.is)
			}
			if c.problem == "" {
				if string(body) != "body" || response.Header.Get("X-Served") != "yes" ||
					served != before+1 {
					t.Errorf("the answer is %q, with %v, served %d times; want that of the service",
						body, response.Header, served-before)
				}
				return
			}
			var p struct {
				Type, Title, Detail, Resource string
				Status                        int
				Token, Newest                 fence.Token
			}
			if err := json.Unmarshal(body, &p); err != nil ||
				response.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%s, %v, %v", body, response.Header, err)
			}
			if !strings.HasSuffix(p.Type, c.problem) || p.Status != c.status || p.Title == "" ||
				p.Detail == "" || p.Resource != "/a" {
				t.Errorf("the body is %s", body)
			}
			if c.is == fence.ErrStale && (p.Token != 4 || p.Newest != 5) {
				t.Errorf("the body is %s; want token 4 and newest 5", body)
			}
			if strings.Contains(string(body), "password") || response.Header.Get("X-Served") != "" {
				t.Errorf("the answer has what is not for the caller: %s, %v", body, response.Header)
			}
			if c.guard == nil && served != before {
				t.Error("the service was asked all the same")
			}
		})
	}
	if len(told) != 2 || !errors.Is(told[0], secret) || !errors.Is(told[1], secret) {
		t.Errorf("the service was told %v; want both failures of the guard", told)
	}
}

func TestTransport(t *testing.T) {
	var got []string
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Values("Fencing-Token")
		return httptest.NewRecorder().Result(), nil
	})
	request := httptest.NewRequest(http.MethodPut, "http://user:password@service/", nil)
	if _, err := (httpfence.Transport{Base: base}).RoundTrip(request); err != nil || got != nil {
		t.Errorf("without a token: %v, %v", got, err)
	}
	with := request.WithContext(httpfence.WithToken(t.Context(), 42))
	if _, err := (httpfence.Transport{Base: base}).RoundTrip(with); err != nil || len(got) != 1 ||
		got[0] != "42" {
		t.Errorf("with a token: %v, %v", got, err)
	}
	if with.Header.Get("Fencing-Token") != "" {
		t.Error("the caller's request was changed")
	}
	closed := &closer{}
	bad := request.WithContext(httpfence.WithToken(t.Context(), 0))
	bad.Body = closed
	got = nil
	_, err := httpfence.Transport{Base: base}.RoundTrip(bad)
	if !errors.Is(err, fence.ErrInvalid) || got != nil || !closed.closed ||
		strings.Contains(err.Error(), "password") {
		t.Errorf("with token 0: sent %v, body closed %v, %v; want ErrInvalid and nothing sent", got,
			closed.closed, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closer struct{ closed bool }

func (c *closer) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closer) Close() error             { c.closed = true; return nil }

func TestCheckLeavesOtherAnswersAlone(t *testing.T) {
	for _, c := range []struct {
		status      int
		media, body string
	}{
		{412, "application/json", `{"type":"x"}`},
		{412, "application/problem+json", `{"type":"https://example.com/other"}`},
		{412, "application/problem+json", `no JSON`},
		{200, "application/problem+json",
			`{"type":"https://github.com/holdfast-go/holdfast/blob/main/docs/fencing.md#stale-token"}`},
	} {
		response := &http.Response{StatusCode: c.status,
			Header: http.Header{"Content-Type": {c.media}},
			Body:   io.NopCloser(strings.NewReader(c.body))}
		if err := httpfence.Check(response); err != nil {
			t.Errorf("Check of %d %s %s = %v; want nil", c.status, c.media, c.body, err)
		}
	}
}

// TestRefusalsAreDocumented sees that each refusal has its heading in the document.
func TestRefusalsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing-token", "stale-token", "invalid-token", "not-found",
		"outcome-unknown", "unavailable"} {
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("docs/fencing.md has no heading %s", name)
		}
	}
}
