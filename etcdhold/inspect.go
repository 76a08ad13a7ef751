package etcdhold

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

// pageSize is how many keys of etcd List reads at once.
const pageSize = 1000

// Inspect describes one key with its waiters. It does not tell what remains of leases, because etcd
// keeps them for longer than a claim lasts. ctx and [WithTimeout] bound the call. It fails with
// ErrUnavailable.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	limited, cancel, err := b.looking(ctx)
	if err != nil {
		return driver.Entry{}, err
	}
	defer cancel()
	n := b.layout.names(key)
	from, end := n.claimRange()
	answer, err := b.get(limited, from, clientv3.WithRange(end))
	if err != nil {
		return driver.Entry{}, b.lookFailed(ctx, err)
	}
	entry, _ := b.entry(key, answer.Kvs)
	return entry, nil
}

// looking returns the context of a request that changes nothing.
func (b *Backend) looking(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, cutOff(false, err)
	}
	if b.isClosed() {
		return nil, nil, closedError()
	}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	stop := context.AfterFunc(b.ctx, cancel)
	return limited, func() { stop(); cancel() }, nil
}

func (b *Backend) lookFailed(ctx context.Context, err error) error {
	if why := ctx.Err(); why != nil {
		return cutOff(false, why)
	}
	if status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		return cutOff(false, fmt.Errorf("no answer within %v: %w", b.timeout,
			context.DeadlineExceeded))
	}
	return b.ours(failure(err))
}

// entry describes the key. live is false if nobody holds it or waits for it.
func (b *Backend) entry(key string, claims []*mvccpb.KeyValue) (e driver.Entry, live bool) {
	n := b.layout.names(key)
	p := newPlan(n, readState(n, 0, claims, nil), b.dead(key))
	e.Key = key
	for _, h := range p.holders {
		party := driver.Party{Owner: h.owner, Token: driver.Token(h.record.Token)}
		if h.record.Shared {
			e.Sharers = append(e.Sharers, party)
		} else {
			e.Holder = party
		}
	}
	for _, w := range p.waiters {
		e.Waiters = append(e.Waiters, driver.Party{Owner: w.owner})
	}
	return e, len(p.holders)+len(p.waiters) > 0
}

// List yields every key that is held or waited for and begins with prefix, without its waiters, in
// the order of bytes. It reads a thousand at once, so the whole is no snapshot. It fails as
// [Backend.Inspect] does.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		l := listing{b: b, yield: yield}
		from := b.layout.locks() + escape(prefix)
		end := clientv3.GetPrefixRangeEnd(from)
		for {
			answer, err := l.page(ctx, from, end)
			if err != nil {
				yield(driver.Entry{}, err)
				return
			}
			driver.Answered(ctx)
			for _, kv := range answer.Kvs {
				if !l.add(kv) {
					return
				}
			}
			if !answer.More {
				l.flush()
				return
			}
			from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		}
	}
}

// listing gathers what belongs to one key.
type listing struct {
	b      *Backend
	yield  func(driver.Entry, error) bool
	key    string
	claims []*mvccpb.KeyValue
}

func (l *listing) page(ctx context.Context, from, end string) (*etcdserverpb.RangeResponse, error) {
	limited, cancel, err := l.b.looking(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	answer, err := l.b.get(limited, from, clientv3.WithRange(end),
		clientv3.WithLimit(pageSize))
	if err != nil {
		return nil, l.b.lookFailed(ctx, err)
	}
	return answer, nil
}

func (l *listing) add(kv *mvccpb.KeyValue) bool {
	key, kind, _, ok := l.b.layout.parse(string(kv.Key))
	if !ok || kind != holderKind && kind != waiterKind {
		return true
	}
	if key != l.key && !l.flush() {
		return false
	}
	l.key, l.claims = key, append(l.claims, kv)
	return true
}

func (l *listing) flush() bool {
	claims := l.claims
	l.claims = nil
	if len(claims) == 0 {
		return true
	}
	entry, live := l.b.entry(l.key, claims)
	entry.Waiters = nil
	return !live || l.yield(entry, nil)
}
