package etcdhold

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// slowLogin is a server that answers a login when it is told to.
type slowLogin struct {
	clientv3.Auth
	began  int
	answer chan error
}

func (s *slowLogin) Authenticate(ctx context.Context, _,
	_ string) (*clientv3.AuthenticateResponse, error) {
	s.began++
	select {
	case err := <-s.answer:
		return &clientv3.AuthenticateResponse{Token: "token"}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Many requests that find their token out of date log in once together. The login goes on when all
// of them have been given up, and the next request has its token.
func TestOneLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowLogin{answer: make(chan error)}
		l := &logins{Auth: s}
		login := func(ctx context.Context) error {
			r, err := l.Authenticate(ctx, "user", "password")
			if err == nil && r.Token != "token" {
				t.Errorf("the token is %q", r.Token)
			}
			return err
		}
		var waiting sync.WaitGroup
		for range 50 {
			waiting.Go(func() {
				if err := login(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.answer <- nil
		waiting.Wait()
		if s.began != 1 {
			t.Errorf("%d logins; want 1", s.began)
		}

		ctx, cancel := context.WithCancel(t.Context())
		waiting.Go(func() {
			if err := login(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a login that is given up: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		waiting.Wait()
		s.answer <- nil
		synctest.Wait()
		if err := login(t.Context()); err != nil || s.began != 2 {
			t.Errorf("after one that was given up: %v, %d logins; want nil and 2", err, s.began)
		}

		refused := errors.New("refused")
		waiting.Go(func() {
			if err := login(t.Context()); !errors.Is(err, refused) {
				t.Errorf("a login that is refused: %v", err)
			}
		})
		synctest.Wait()
		s.answer <- refused
		waiting.Wait()
		// The client logs in because the login was refused for its token. It is to drop that.
		again := context.WithValue(t.Context(), loginKey{}, true)
		if err := login(again); !errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			t.Errorf("a login within a login: %v; want %v", err, rpctypes.ErrAuthNotEnabled)
		}
		// A server that does not answer costs a login its time, and no more.
		if err := login(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a login without an answer: %v", err)
		}
	})
}
