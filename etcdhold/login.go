package etcdhold

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// logins is how a client logs in, once at a time. The client by itself logs in for every request
// that finds the token out of date, as all do when a server has restarted. A login costs a server a
// tenth of a second of its processor. If many log in at once, none is done before its time is over,
// each is made again, and the server serves nobody any more.
//
// The client sends the old token along, and etcd 3.4 refuses that, too. Then the client would log
// in because of its login, without end.
type logins struct {
	clientv3.Auth

	mu      sync.Mutex
	current *login
	unused  *clientv3.AuthenticateResponse // of a login for which nobody waited any more
}

// login is one under way.
type login struct {
	done   chan struct{}
	answer *clientv3.AuthenticateResponse
	err    error
	wait   int // how many wait for it
}

// Authenticate logs in, or waits for the login that is under way. A login goes on when ctx ends, so
// that a short time for a request does not mean that there is never a token.
func (l *logins) Authenticate(ctx context.Context, name,
	password string) (*clientv3.AuthenticateResponse, error) {
	if ctx.Value(loginKey{}) != nil {
		// The login itself was refused for its token. After this error the client drops the token
		// and makes the login again.
		return nil, rpctypes.ErrAuthNotEnabled
	}
	l.mu.Lock()
	if answer := l.unused; answer != nil {
		l.unused = nil
		l.mu.Unlock()
		return answer, nil
	}
	x := l.current
	if x == nil {
		x = &login{done: make(chan struct{})}
		l.current = x
		go l.run(context.WithoutCancel(ctx), x, name, password)
	}
	x.wait++
	l.mu.Unlock()
	select {
	case <-x.done:
		return x.answer, x.err
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		x.wait--
		return nil, ctx.Err()
	}
}

// loginKey marks the context of a login.
type loginKey struct{}

func (l *logins) run(ctx context.Context, x *login, name, password string) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	x.answer, x.err = l.Auth.Authenticate(context.WithValue(ctx, loginKey{}, true), name, password)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	if x.err == nil && x.wait == 0 {
		l.unused = x.answer
	}
	close(x.done)
}
