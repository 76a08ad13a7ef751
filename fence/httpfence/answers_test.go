package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// TestCheckLeavesOtherAnswers sees that Check does not read the body of an answer that is no
// refusal.
func TestCheckLeavesOtherAnswers(t *testing.T) {
	const body = `{"type":"https://bank.example/no-funds","status":403,"balance":30}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, body)
	}))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := httpfence.Check(response); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(response.Body); string(text) != body {
		t.Errorf("after Check = nil the body of the service's own error is %q, %v", text, err)
	}
}

// TestHeadersOfOthers sees that a guarded handler adds to what a handler around it has set, as it
// does for GET.
func TestHeadersOfOthers(t *testing.T) {
	h := httpfence.Handler{Guard: new(fence.Register),
		Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Remove")
		})}
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		w.Header().Set("X-Remove", "1")
		h.ServeHTTP(w, r)
	})
	for _, method := range []string{"GET", "POST"} {
		r := httptest.NewRequest(method, "/a", nil)
		r.Header.Set(httpfence.Header, "5")
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, r)
		if got := w.Result().Header; !slices.Equal(got.Values("Vary"),
			[]string{"Origin", "Accept"}) || got.Get("X-Remove") != "" {
			t.Errorf("%s: the header is %v", method, got)
		}
	}
}

// TestTrailers sees that trailers that Next announces come.
func TestTrailers(t *testing.T) {
	h := httpfence.Handler{Guard: new(fence.Register),
		Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "7")
		})}
	server := httptest.NewServer(h)
	defer server.Close()
	for _, method := range []string{"GET", "POST"} {
		r, _ := http.NewRequest(method, server.URL, nil)
		r.Header.Set(httpfence.Header, "5")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.Trailer.Get("X-Sum") != "7" {
			t.Errorf("%s: the trailer is %v", method, response.Trailer)
		}
	}
}

// TestNilHeader sees that a request without a header map causes no panic.
func TestNilHeader(t *testing.T) {
	u, _ := url.Parse("http://127.0.0.1:1/")
	r := (&http.Request{Method: "PUT", URL: u}).WithContext(
		httpfence.WithToken(context.Background(), 5))
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("RoundTrip panics: %v", p)
		}
	}()
	base := transport(func(r *http.Request) (*http.Response, error) {
		return nil, errors.New(r.Header.Get(httpfence.Header))
	})
	if _, err := (httpfence.Transport{Base: base}).RoundTrip(r); err == nil || err.Error() != "5" {
		t.Errorf("the token sent is %v; want 5", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestTokenInOtherForms has values that are not tokens.
func TestTokenInOtherForms(t *testing.T) {
	h := httpfence.Handler{Guard: new(fence.Register),
		Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	for _, value := range []string{"", " ", "+5", "5,5", "0x5", "0", "-0", "5.0",
		"9007199254740993", "18446744073709551621", "５", strings.Repeat("0", 100) + "x"} {
		r := httptest.NewRequest("POST", "/a", nil)
		r.Header[httpfence.Header] = []string{value}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 400 {
			t.Errorf("%q: %d", value, w.Code)
		}
	}
}
