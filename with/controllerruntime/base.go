package withcontrollerruntime

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// noTimeout has a manager wait for its runnables.
const noTimeout = time.Duration(-1)

// base is the context from which those of all runnables of a manager come. It ends with the lock. A
// manager cancels them one kind after the other, and waits in between.
type base struct {
	context.Context
	end   context.CancelCauseFunc
	token func() (holdfast.Token, bool)
}

// newBase returns one with the values of the user's.
func newBase(users manager.BaseContextFunc) *base {
	parent := context.Background()
	if users != nil {
		parent = users()
	}
	b := &base{}
	b.Context, b.end = context.WithCancelCause(parent)
	return b
}

// follow ends the context with the lock of the term, and has the manager stop when the term ends,
// which is no later. If the term ends on purpose, the manager stops in its order, while the lock is
// held. A manager that has not started yet has no order. After a loss the context ends before the
// manager stops, which would end the contexts of its runnables without the cause.
func (b *base) follow(ctx context.Context, term election.Term, started <-chan struct{},
	stop context.CancelFunc) {
	defer stop()
	select {
	case <-ctx.Done():
	case <-b.Done():
		return
	}
	if err := term.Err(); err != nil {
		b.end(err)
		return
	}
	select {
	case <-started:
	default:
		b.end(context.Cause(ctx))
		return
	}
	stop()
	select {
	case <-term.Done():
		b.end(term.Err())
	case <-b.Done():
	}
}

type tokenKey struct{}

func (b *base) Value(key any) any {
	if key == (tokenKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// Token returns the fencing token of the lock that the manager leads by, from the context of a
// reconciler or another runnable. It is false before the lock was taken, on a standby, and for a
// context that comes from elsewhere.
func Token(ctx context.Context) (holdfast.Token, bool) {
	b, ok := ctx.Value(tokenKey{}).(*base)
	if !ok {
		return 0, false
	}
	return b.token()
}
