//go:build unix

package etcdfence_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// briefly is how long to wait for servers that do not answer. It ends no call that is answered.
const briefly = 100 * time.Millisecond

// Nothing is sent to a killed server, so nothing is unknown. When the server is back, so is its
// token.
func TestKilledServer(t *testing.T) {
	client := connect(t)
	empty(t, client)
	guard := patient(client)
	if _, err := guard.Do(t.Context(), "r", 5, clientv3.OpPut("v", "a")); err != nil {
		t.Fatal(err)
	}
	kill(t, server, client)
	_, err := etcdfence.Guard{Client: client, Timeout: briefly}.Do(t.Context(), "r", 6,
		clientv3.OpPut("v", "b"))
	isUnavailable(t, "Do without a server", err)
	testserver.Eventually(t, "Do begins before its context ends", func() error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), briefly, errWhy)
		defer cancel()
		_, err = guard.Do(ctx, "r", 6, clientv3.OpPut("v", "b"))
		return testserver.Not(errors.Is(err, fence.ErrUnavailable), "%v", err)
	})
	isUnavailable(t, "Do without a server until its context ends", err)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) {
		t.Errorf("Do until its context ends = %v; want the context's error and cause", err)
	}
	restart(t, client)
	if v, _ := get(t, client, "v"); v != "a" {
		t.Errorf("what was not sent is written: %q", v)
	}
	if _, err := guard.Do(t.Context(), "r", 4, clientv3.OpPut("v", "c")); !isStale(err, 5) {
		t.Errorf("Do with an older token after a restart = %v; want a StaleError by 5", err)
	}
}

// A client that is closed sends nothing.
func TestClosedClient(t *testing.T) {
	client := connect(t)
	client.Close()
	_, err := patient(client).Do(t.Context(), "r", 5)
	isUnavailable(t, "Do with a client that is closed", err)
}

// kill kills the server, and waits until the client knows.
func kill(t *testing.T, s etcdtest.Server, client *clientv3.Client) {
	t.Helper()
	s.Kill()
	ctx, cancel := patience(t)
	defer cancel()
	if !client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatal("the client does not notice that the server is gone")
	}
}

var errWhy = errors.New("the caller's reason")

func isUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, fence.ErrUnavailable) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("%s = %v; want ErrUnavailable, and no ErrUnknown", what, err)
	}
}

func isUnknown(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrUnavailable) ||
		errors.Is(err, fence.ErrStale) {
		t.Errorf("%s = %v; want ErrUnknown", what, err)
	}
}

func isStale(err error, newest fence.Token) bool {
	var stale *fence.StaleError
	return errors.As(err, &stale) && stale.Newest == newest
}

// A frozen server may write when it goes on. Every call ends, even if its context does not.
func TestFrozenServer(t *testing.T) {
	empty(t, connect(t))
	proxy := newCutter(t)
	client := connect(t, proxy.endpoint)
	guard := etcdfence.Guard{Client: client, Timeout: testserver.Patience}
	if _, err := guard.Do(t.Context(), "r", 5); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	defer server.Thaw()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-proxy.asked
		cancel(errWhy)
	}()
	_, err := guard.Do(ctx, "r", 6, clientv3.OpPut("v", cutMark))
	isUnknown(t, "Do until its context ends", err)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
		t.Errorf("Do until its context ends = %v; want the context's error and cause", err)
	}
	guard.Timeout = briefly
	_, err = guard.Do(context.Background(), "r", 6, clientv3.OpPut("v", cutMark))
	select {
	case <-proxy.asked:
		isUnknown(t, "Do that was sent until Guard.Timeout", err)
	default: // the machine was too busy to send it in that time
		if !errors.Is(err, fence.ErrUnavailable) && !errors.Is(err, fence.ErrUnknown) {
			t.Errorf("Do until Guard.Timeout = %v; want ErrUnavailable or ErrUnknown", err)
		}
	}
}

// A connection that breaks before the answer is there leaves the outcome open, and nothing is
// written twice.
func TestAnswerCut(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	proxy := newCutter(t)
	client := connect(t, proxy.endpoint)
	guard := patient(client)
	if _, err := guard.Do(t.Context(), "r", 5, clientv3.OpPut("v", "a")); err != nil {
		t.Fatal(err)
	}
	_, err := guard.Do(t.Context(), "r", 6, clientv3.OpPut("v", cutMark))
	isUnknown(t, "Do whose answer is cut", err)
	if !strings.Contains(err.Error(), proxy.address) {
		t.Errorf("Do whose answer is cut = %v; want the node: %s", err, proxy.address)
	}
	if v, writes := get(t, direct, "v"); v != cutMark || writes != 2 {
		t.Errorf("after the answer was cut %q is there, after %d writes; want the second one", v,
			writes)
	}
	if _, err := guard.Do(t.Context(), "r", 5); !isStale(err, 6) {
		t.Errorf("Do with the token before = %v; want a StaleError by 6", err)
	}
	if _, err := guard.Do(t.Context(), "r", 6, clientv3.OpPut("v", "b")); err != nil {
		t.Errorf("Do with the same token again = %v", err)
	}
}

// cutter is a proxy that closes a connection in place of the answer to a request that has cutMark
// in it, once the server has executed it.
type cutter struct {
	address string
	asked   chan struct{} // one for each request with cutMark
	cut     atomic.Bool
}

const cutMark = "CUT-THE-ANSWER"

func newCutter(t *testing.T) *cutter {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{address: listener.Addr().String(), asked: make(chan struct{}, 10)}
	var running sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("unix", server.Socket)
			if err != nil {
				client.Close()
				continue
			}
			running.Go(func() { c.passRequests(client, upstream) })
			running.Go(func() { c.passAnswers(upstream, client) })
		}
	})
	return c
}

// endpoint makes a client go through the proxy.
func (c *cutter) endpoint(config *clientv3.Config) { config.Endpoints = []string{c.address} }

func (c *cutter) passRequests(client, upstream net.Conn) {
	testserver.Pass(client, upstream, func(request []byte) bool {
		if bytes.Contains(request, []byte(cutMark)) {
			c.cut.Store(true)
			c.asked <- struct{}{}
		}
		return true
	})
}

// passAnswers looks for the frame of an answer: the server acknowledges settings and pings before
// it has executed anything.
func (c *cutter) passAnswers(upstream, client net.Conn) {
	testserver.Pass(upstream, client, func(answer []byte) bool {
		return !(hasData(answer) && c.cut.Swap(false))
	})
}

// hasData reports whether there is a DATA frame of HTTP/2 among whole frames.
func hasData(frames []byte) bool {
	const header, data = 9, 0
	for len(frames) >= header {
		length := int(frames[0])<<16 | int(frames[1])<<8 | int(frames[2])
		if frames[3] == data {
			return true
		}
		frames = frames[min(len(frames), header+length):]
	}
	return false
}
