package httpfence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/holdfast-go/holdfast/fence"
)

// Header is the header field that has the token.
const Header = "Fencing-Token"

type tokenKey struct{}

// WithToken returns a context whose requests a [Transport] sends with the token.
func WithToken(ctx context.Context, token fence.Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// Transport sends the token of the request's context (see [WithToken]). It sends a request without
// a token as it is.
type Transport struct {
	// Base sends the requests. Default [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper]. It fails with [fence.ErrInvalid] for a token that is
// not allowed, before anything is sent.
func (t Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if token, ok := request.Context().Value(tokenKey{}).(fence.Token); ok {
		if err := fence.ValidateToken(request.URL.Redacted(), token); err != nil {
			if request.Body != nil {
				request.Body.Close()
			}
			return nil, err
		}
		request = request.Clone(request.Context()) // the caller's request must not be changed
		if request.Header == nil {
			request.Header = make(http.Header)
		}
		request.Header.Set(Header, token.String())
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(request)
}

// maxProblem is how much of a refusal is read: names are limited, so it is longer only if it is not
// ours.
const maxProblem = 64 << 10

// Check returns nil unless the response is a refusal of a [Handler]. For a refusal it reads the
// body and returns a [*fence.StaleError], or an error that is [fence.ErrInvalid],
// [fence.ErrNotFound], [fence.ErrUnavailable] or [fence.ErrUnknown]. The caller closes the body in
// any case. An error of the service itself is no refusal: Check returns nil, the body can still be
// read, and the caller looks at the status.
func Check(response *http.Response) error {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode < 400 || media != mediaType {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("fence: response with status %d: %w", response.StatusCode, err)
	}
	var p problem
	if err := json.Unmarshal(text, &p); err == nil && p.Type != "" {
		if err := p.refusal(); err != nil {
			return err
		}
	}
	response.Body = unread{io.MultiReader(bytes.NewReader(text), response.Body), response.Body}
	return nil
}

// unread is a body of which the caller can read a part that was read before.
type unread struct {
	io.Reader
	io.Closer
}

// refusal is the error that the problem stands for, or nil if it is none of ours.
func (p problem) refusal() error {
	for _, k := range kinds {
		if p.Type != k.uri() {
			continue
		}
		if k.is == fence.ErrStale {
			return &fence.StaleError{Resource: p.Resource, Token: p.Token, Newest: p.Newest}
		}
		return fmt.Errorf("fence: write to %q: %w: %s", p.Resource, k.is, p.Detail)
	}
	return nil
}

// mediaType is that of RFC 9457.
const mediaType = "application/problem+json"

// problem is the body of a refusal.
type problem struct {
	Type     string      `json:"type"`
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail"`
	Resource string      `json:"resource,omitempty"`
	Token    fence.Token `json:"token,omitempty"`
	Newest   fence.Token `json:"newest,omitempty"`
}

// kind is a kind of refusal.
type kind struct {
	name   string
	title  string
	status int
	is     error
}

// uri identifies the kind, in a document that tells about it.
func (k kind) uri() string {
	return "https://github.com/holdfast-go/holdfast/blob/main/docs/fencing.md#" + k.name
}

var (
	missing = kind{"missing-token", "Fencing token required", http.StatusPreconditionRequired,
		fence.ErrInvalid}
	invalid = kind{"invalid-token", "Fencing token not allowed", http.StatusBadRequest,
		fence.ErrInvalid}

	// kinds are what an error of a guard may be; the last is for all others.
	kinds = []kind{
		missing,
		{"stale-token", "Stale fencing token", http.StatusPreconditionFailed, fence.ErrStale},
		invalid,
		{"not-found", "No such resource", http.StatusNotFound, fence.ErrNotFound},
		{"outcome-unknown", "Outcome unknown", http.StatusInternalServerError, fence.ErrUnknown},
		{"unavailable", "Guard unavailable", http.StatusServiceUnavailable, fence.ErrUnavailable},
	}
)

// kindOf returns the kind of a guard's error.
func kindOf(err error) kind {
	for _, k := range kinds[1:] {
		if errors.Is(err, k.is) {
			return k
		}
	}
	return kinds[len(kinds)-1]
}
