//go:build unix

package s3fence_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
)

// proxy stands between a client and the gateway, and breaks connections.
type proxy struct {
	*httptest.Server
	lose map[string]func(n int) loss // by method: what becomes of the nth request, from 1 on

	mu       sync.Mutex
	requests map[string]int // by method: how many came
}

// loss says when the connection breaks.
type loss int

const (
	answered      loss = iota // it does not
	beforeRequest             // the gateway does not get the request
	beforeAnswer              // the client does not get the answer
)

func newProxy(t *testing.T, server versitytest.Server, lose map[string]func(int) loss) *proxy {
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{lose: lose, requests: make(map[string]int)}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which is signed
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway) // the client has gone, which is nothing to log
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lost := p.next(r.Method)
		if lost == beforeRequest {
			panic(http.ErrAbortHandler)
		}
		if lost == answered {
			pass.ServeHTTP(w, r)
			return
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(p.Close)
	return p
}

// next counts a request, and says what becomes of it.
func (p *proxy) next(method string) loss {
	p.mu.Lock()
	p.requests[method]++
	n := p.requests[method]
	p.mu.Unlock()
	if lose := p.lose[method]; lose != nil {
		return lose(n)
	}
	return answered
}

// count is how many requests came.
func (p *proxy) count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[method]
}

// first loses the first request.
func first(how loss) func(int) loss {
	return func(n int) loss {
		if n == 1 {
			return how
		}
		return answered
	}
}

// impatient makes the client repeat requests as often as by default, but sooner.
func impatient(o *s3.Options) {
	o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond)
}

func TestLostAnswers(t *testing.T) {
	server := versitytest.Start(t)
	direct := connect(server.URL)
	bucket := newBucket(t, direct)
	for _, c := range []struct {
		name        string
		write, look func(n int) loss
		writes      int
		want        error
		value       string
	}{
		{"a look finds the write", first(beforeAnswer), nil, 1, nil, "new"},
		{"a look finds that it did not come", first(beforeRequest), nil, 2, nil, "new"},
		{"nothing more is answered", first(beforeAnswer), func(n int) loss {
			if n > 2 {
				return beforeAnswer
			}
			return answered
		}, 1, fence.ErrUnknown, "new"},
		{"nothing more comes", first(beforeRequest), func(n int) loss {
			if n > 2 {
				return beforeRequest
			}
			return answered
		}, 1, fence.ErrUnknown, "old"},
		{"no look is answered", first(answered), func(int) loss { return beforeAnswer }, 0,
			fence.ErrUnavailable, "old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, server, map[string]func(int) loss{http.MethodPut: c.write,
				http.MethodHead: c.look})
			key := strings.ReplaceAll(c.name, " ", "-")
			guard := s3fence.Guard{Client: direct, Bucket: bucket}
			if err := guard.Put(t.Context(), key, 4, stamped("old")); err != nil {
				t.Fatal(err)
			}
			guard.Client = connect(p.URL, impatient)
			err := guard.Put(t.Context(), key, 5, stamped("new"))
			if !errors.Is(err, c.want) || errors.Is(err, fence.ErrStale) {
				t.Errorf("Put = %v; want %v", err, c.want)
			}
			if n := p.count(http.MethodPut); n != c.writes {
				t.Errorf("%d writes were sent; want %d", n, c.writes)
			}
			content, _, err := get(t.Context(), direct, bucket, key)
			if got := valueOf(content); err != nil || got != c.value {
				t.Errorf("the value is %q, %v; want %q", got, err, c.value)
			}
		})
	}
}

// TestFrozenStore: the context ends while the gateway does not answer a write.
func TestFrozenStore(t *testing.T) {
	server := versitytest.Start(t)
	client := connect(server.URL)
	why := errors.New("the lock was lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	guard := s3fence.Guard{Bucket: newBucket(t, client), Client: client}
	p := newProxy(t, server, map[string]func(int) loss{http.MethodPut: func(int) loss {
		server.Freeze()
		cancel(why)
		return answered
	}})
	guard.Client = connect(p.URL)
	err := guard.Put(ctx, "key", 5, stamped("a"))
	server.Thaw()
	if !errors.Is(err, fence.ErrUnknown) || !errors.Is(err, why) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("Put on a frozen store = %v; want ErrUnknown, and why", err)
	}
}

// TestALateWrite: a write arrives after its caller has given it up and a later holder has written,
// with an object there before or none.
func TestALateWrite(t *testing.T) {
	server := versitytest.Start(t)
	client := connect(server.URL)
	guard := s3fence.Guard{Client: client, Bucket: newBucket(t, client)}
	if err := guard.Put(t.Context(), "there", 4, stamped("old")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"there", "new"} {
		var late *s3.PutObjectInput
		slow := guard
		slow.Client = detour{client, func(in *s3.PutObjectInput) { late = in }}
		ctx, cancel := context.WithCancel(t.Context())
		err := slow.Put(ctx, key, 5, func(stamp string) ([]byte, error) {
			cancel()
			return stamped("late")(stamp)
		})
		if !errors.Is(err, fence.ErrUnknown) {
			t.Errorf("%s: Put that is given up = %v; want ErrUnknown", key, err)
		}
		if err := guard.Put(t.Context(), key, 6, stamped("newer")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.PutObject(t.Context(), late); code(err) !=
			http.StatusPreconditionFailed {
			t.Errorf("%s: the late write is answered with %v; want 412", key, err)
		}
		content, _, err := get(t.Context(), client, guard.Bucket, key)
		if valueOf(content) != "newer" || err != nil {
			t.Errorf("%s: the value is %q, %v; want that of token 6", key, content, err)
		}
	}
}

// detour keeps writes back, for now.
type detour struct {
	s3fence.Client
	keep func(*s3.PutObjectInput)
}

func (d detour) PutObject(ctx context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (
	*s3.PutObjectOutput, error) {
	d.keep(in)
	<-ctx.Done()
	return nil, ctx.Err()
}
