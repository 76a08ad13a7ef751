package httpfence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/holdfast-go/holdfast/fence"
)

// Handler refuses requests whose token is older than one that was accepted for the same resource,
// and hands the others to Next. While Next runs, no other request to the resource runs in any
// process that shares the guard's store. [fence.Register] is not shared: it is a store for a single
// process.
//
// The response of Next is kept in memory until the guard has accepted it for good. So it cannot be
// flushed, hijacked or streamed. A response with a status of 400 or above counts as a write that
// failed: a guard that can undo it does.
type Handler struct {
	// Guard is the store behind it. Required.
	Guard fence.Guard

	// Next serves the requests that are not refused. Required.
	Next http.Handler

	// Resource names what a request writes. Two requests that write the same thing need the same
	// name, so it must depend on nothing that a caller can choose but the resource that it
	// addresses. Default is the path of the URL.
	Resource func(*http.Request) string

	// Failed is called with the errors of the guard that are not the caller's fault: those answered
	// with 503 and 500. These answers do not name the reason. Default: nothing is called.
	Failed func(*http.Request, error)
}

// errAnswered says that Next has answered with an error.
var errAnswered = errors.New("answered with an error")

// ServeHTTP implements [http.Handler].
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		h.Next.ServeHTTP(w, r)
		return
	}
	resource := r.URL.Path
	if h.Resource != nil {
		resource = h.Resource(r)
	}
	token, k, err := tokenOf(r, resource)
	if err != nil {
		refuse(w, k, resource, token, err)
		return
	}
	answer := answer{header: w.Header().Clone()} // with the fields that outer handlers have set
	err = h.Guard.Do(r.Context(), resource, token, func(ctx context.Context) error {
		h.Next.ServeHTTP(&answer, r.WithContext(ctx))
		if answer.status >= 400 {
			return errAnswered
		}
		return nil
	})
	if err == nil || errors.Is(err, errAnswered) {
		answer.send(w)
		return
	}
	k = kindOf(err)
	if k.status >= 500 && h.Failed != nil {
		h.Failed(r, err)
	}
	refuse(w, k, resource, token, err)
}

// tokenOf reads the token of a request.
func tokenOf(r *http.Request, resource string) (fence.Token, kind, error) {
	fields := r.Header.Values(Header)
	switch len(fields) {
	case 0:
		return 0, missing, fmt.Errorf("the request has no %s, which every write to %q needs",
			Header, resource)
	case 1:
	default:
		return 0, invalid, fmt.Errorf("the request has %s %d times; once is allowed", Header,
			len(fields))
	}
	for _, c := range []byte(fields[0]) {
		if c < '0' || c > '9' { // ParseUint takes a sign
			return 0, invalid, fmt.Errorf("%s is %.40q; decimal digits are allowed", Header,
				fields[0])
		}
	}
	n, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0, invalid, fmt.Errorf("%s is %.40q; allowed is 1 to %d", Header,
			fields[0], fence.MaxToken)
	}
	return fence.Token(n), invalid, fence.Validate(resource, fence.Token(n))
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, k kind, resource string, token fence.Token, err error) {
	p := problem{Type: k.uri(), Title: k.title, Status: k.status, Detail: err.Error(),
		Resource: resource, Token: token}
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		p.Newest = stale.Newest
	}
	switch k.is {
	case fence.ErrUnknown: // without the reason, which is only for the service itself
		p.Detail = "The service does not know whether it has written. The same request may be sent again with the same token."
	case fence.ErrUnavailable:
		p.Detail = "The service could not ask its guard. Nothing was written."
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(k.status)
	w.Write(append(body, '\n'))
}

// answer is a response that is kept.
type answer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header)
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status, a.sent = status, a.Header().Clone()
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) send(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK)
	clear(w.Header())
	maps.Copy(w.Header(), a.sent)
	w.WriteHeader(a.status)
	w.Write(a.body.Bytes())
	maps.Copy(w.Header(), a.header) // of which only trailers are still sent
}
