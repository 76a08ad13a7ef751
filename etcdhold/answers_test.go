//go:build unix

package etcdhold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// delayer keeps back answers to transactions.
type delayer struct{ next chan *delayed }

// delayed is one transaction.
type delayed struct {
	executed chan struct{} // closed when etcd has answered
	pass     chan struct{} // closed to let the answer through
}

func newDelayer() *delayer { return &delayer{make(chan *delayed, 10)} }

// arm keeps back the answer to the next transaction that an earlier arm does not keep back.
func (d *delayer) arm() *delayed {
	a := &delayed{make(chan struct{}), make(chan struct{})}
	d.next <- a
	return a
}

func (d *delayer) intercept(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, answer, conn, options...)
	if _, ok := request.(*pb.TxnRequest); !ok {
		return err
	}
	select {
	case a := <-d.next:
		close(a.executed)
		select {
		case <-a.pass:
		case <-ctx.Done():
		}
	default:
	}
	return err
}

// unreliable is a client whose answers come late or get lost.
type unreliable struct {
	delayer
	keeper
	cutter
}

func newUnreliable() *unreliable {
	return &unreliable{*newDelayer(), keeper{kept: make(chan *pb.TxnRequest, 10)}, cutter{}}
}

func (u *unreliable) into(c *clientv3.Config) {
	c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(u.delayer.intercept,
		u.keeper.intercept, u.cutter.intercept))
}

// retire makes the Backend give up its present lease for holders: it releases a claim whose request
// got lost.
func (u *unreliable) retire(t *testing.T, b driver.Backend) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	lost := claim("lost")
	u.keeper.armed.Store(true)
	if _, err := b.Acquire(ctx, lost); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("Acquire without an answer = %v; want ErrUnknown", err)
	}
	release(t, b, lost, driver.Lost)
	<-u.kept
	for range 3 { // by then a lease without claims has been revoked
		c := claim("after")
		acquire(t, b, c, driver.Held)
		release(t, b, c, driver.Held)
	}
}

type outcome struct {
	driver.Result
	err error
}

// asked acquires in the background.
func asked(t *testing.T, b driver.Backend, c driver.Claim) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		ctx, cancel := patience(t)
		defer cancel()
		r, err := b.Acquire(ctx, c)
		done <- outcome{r, err}
	}()
	return done
}

// A lease is not revoked while a claim under it waits for its answer.
func TestLateAnswerKeepsItsLease(t *testing.T) {
	empty(t, connect(t))
	u := newUnreliable()
	b, other := open(t, connect(t, u.into)), open(t, connect(t))
	warm := claim("k") // so that there is a counter
	acquire(t, b, warm, driver.Held)
	release(t, b, warm, driver.Held)
	a := claim("k")
	late := u.delayer.arm()
	done := asked(t, b, a)
	<-late.executed
	u.retire(t, b)
	acquire(t, other, claim("k"), driver.Busy)
	close(late.pass)
	if r := <-done; r.err != nil || r.State != driver.Held {
		t.Fatalf("Acquire = %v, %v; want held", r.State, r.err)
	}
	acquire(t, other, claim("k"), driver.Busy)
	renew(t, b, driver.Held, a)
}

// If a renewal without an answer has moved a claim to another lease, the claim keeps that lease.
func TestUnansweredRenewalKeepsItsLease(t *testing.T) {
	empty(t, connect(t))
	u := newUnreliable()
	b, other := open(t, connect(t, u.into)), open(t, connect(t))
	a, w := claim("k"), queued("k")
	acquire(t, other, a, driver.Held)
	acquire(t, b, w, driver.Busy)
	release(t, other, a, driver.Held)
	testserver.Eventually(t, "the waiter is let in", func() error {
		e, err := other.Inspect(t.Context(), "k")
		return testserver.Not(err == nil && e.Holder.Owner == w.Owner, "%v, %v", e, err)
	})
	u.cutter.armed.Store(true)
	results, err := b.Renew(t.Context(), []driver.Claim{w})
	if err != nil || !errors.Is(results[0].Err, driver.ErrUnknown) {
		t.Fatalf("Renew without an answer = %v, %v; want ErrUnknown", results, err)
	}
	u.retire(t, b)
	acquire(t, other, claim("k"), driver.Busy)
	renew(t, b, driver.Held, w)
}

// If the time of a claim ends while its renewal is under way, another call may pass its key on. The
// renewal does not answer then that the claim holds the key.
func TestRenewalOvertakenByTheEnd(t *testing.T) {
	empty(t, connect(t))
	u := newUnreliable()
	b := open(t, connect(t, u.into))
	a := claim("k")
	acquire(t, b, a, driver.Held)
	renewal := u.delayer.arm()
	renewed := make(chan driver.State, 1)
	go func() {
		results, err := b.Renew(t.Context(), []driver.Claim{a})
		if err != nil {
			results = make([]driver.Result, 1)
		}
		renewed <- results[0].State
	}()
	<-renewal.executed
	look := u.delayer.arm()
	done := asked(t, b, claim("k"))
	<-look.executed
	b.EndTime(a)
	taken := u.delayer.arm()
	close(look.pass)
	<-taken.executed
	close(renewal.pass)
	if state := <-renewed; state != driver.Lost {
		t.Errorf("the renewal says %v; want lost", state)
	}
	close(taken.pass)
	if r := <-done; r.err != nil || r.State != driver.Held {
		t.Errorf("Acquire = %v, %v; want held", r.State, r.err)
	}
}

// A claim that is lost and acquired again while its renewal is under way is not forgotten.
// Otherwise the Backend would take it for nobody's, and pass its key on.
func TestTakenAnewDuringRenewal(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	u := newUnreliable()
	b := open(t, connect(t, u.into))
	a := claim("k")
	acquire(t, b, a, driver.Held)
	lose(t, direct, "k")
	renewal := u.delayer.arm()
	renewed := make(chan driver.State, 1)
	go func() {
		ctx, cancel := patience(t)
		defer cancel()
		results, err := b.Renew(ctx, []driver.Claim{a})
		if err != nil {
			results = make([]driver.Result, 1)
		}
		renewed <- results[0].State
	}()
	<-renewal.executed
	taken := u.delayer.arm()
	done := asked(t, b, a)
	<-taken.executed
	close(renewal.pass)
	if state := <-renewed; state != driver.Lost {
		t.Errorf("the renewal says %v; want lost", state)
	}
	close(taken.pass)
	if r := <-done; r.err != nil || r.State != driver.Held {
		t.Fatalf("Acquire = %v, %v; want held", r.State, r.err)
	}
	acquire(t, b, claim("k"), driver.Busy)
	renew(t, b, driver.Held, a)
	release(t, b, a, driver.Held)
}

// A renewal without an answer may have taken a claim over from another process. If nobody renews
// the claim again, it ends.
func TestUnansweredTakeoverEnds(t *testing.T) {
	empty(t, connect(t))
	u := newUnreliable()
	// The claim lasts as long as a call may take, too.
	b, other := open(t, connect(t, u.into), etcdhold.WithTimeout(time.Second)),
		open(t, connect(t))
	a := claim("k")
	acquire(t, other, a, driver.Held)
	a.TTL = etcdhold.MinTTL
	u.cutter.armed.Store(true)
	testserver.Eventually(t, "it is renewed without an answer", func() error {
		results, err := b.Renew(t.Context(), []driver.Claim{a})
		if err != nil {
			return err
		}
		return testserver.Not(errors.Is(results[0].Err, driver.ErrUnknown), "%v", results)
	})
	u.cutter.armed.Store(false) // a pause of the machine may have been faster
	testserver.Eventually(t, "the claim ends", func() error {
		c := claim("k2") // it keeps the lease alive
		c.TTL = a.TTL
		if _, err := b.Acquire(t.Context(), c); err != nil {
			return err
		}
		if _, err := b.Release(t.Context(), c); err != nil {
			return err
		}
		r, err := other.Acquire(t.Context(), claim("k"))
		return testserver.Not(err == nil && r.State == driver.Held, "%v, %v", r, err)
	})
}
