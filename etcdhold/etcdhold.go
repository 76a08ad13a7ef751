package etcdhold

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of the options.
const (
	DefaultKeyspace = "holdfast/"
	DefaultPresence = 10 * time.Second
	DefaultTimeout  = 5 * time.Second
)

// MinTTL is the shortest TTL of a claim, and the shortest presence. etcd counts leases in whole
// seconds, and the claims of a killed process last for two or more. So a shorter TTL would promise
// what etcd does not keep.
const MinTTL = time.Second

// closing bounds what Close does on the server.
const closing = time.Second

// Backend keeps locks in etcd. It implements driver.Backend, driver.Notifier, driver.Inspector,
// driver.Checker, driver.Sharer and driver.Limited, and is safe for concurrent use.
type Backend struct {
	client   *clientv3.Client
	owned    bool // the client is closed with the Backend
	kv       clientv3.KV
	layout   layout
	presence time.Duration
	timeout  time.Duration
	ctx      context.Context // until Close
	cancel   context.CancelFunc
	turns    turns
	leases   *leases
	running  sync.WaitGroup // requests and watches in the background

	mu          sync.Mutex
	closed      bool
	claims      map[identity]*claim
	watches     map[string]*watch
	subscribers []*subscriber // replaced, never changed in place
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Checker
	driver.Sharer
	driver.Limited
} = (*Backend)(nil)

// Option sets an option of [New] and [Open].
type Option interface{ apply(*Backend) error }

type option func(*Backend) error

func (f option) apply(b *Backend) error { return f(b) }

// WithKeyspace sets the beginning of all keys in etcd. All clients that are to exclude each other
// need the same. Default [DefaultKeyspace]. The path of a URL does the same; the option overrides
// it.
func WithKeyspace(keyspace string) Option {
	return option(func(b *Backend) error {
		if keyspace == "" {
			return invalid("an empty keyspace: name one, such as %q", DefaultKeyspace)
		}
		b.layout = layout(keyspace)
		return nil
	})
}

// WithPresence sets how long a waiter counts as present after it last asked, at least [MinTTL].
// Default [DefaultPresence]. A claim with a shorter TTL is present for its TTL only. A waiter whose
// process is killed delays those behind it for a third longer than its presence, and a second.
func WithPresence(presence time.Duration) Option {
	return option(func(b *Backend) error {
		if presence < MinTTL || presence > driver.MaxTTL {
			return invalid("presence %v: must be %v to %v", presence, MinTTL, driver.MaxTTL)
		}
		b.presence = presence
		return nil
	})
}

// WithTimeout bounds each call, whatever its context says. Default [DefaultTimeout].
func WithTimeout(timeout time.Duration) Option {
	return option(func(b *Backend) error {
		if timeout <= 0 {
			return invalid("timeout %v: must be more than 0", timeout)
		}
		b.timeout = timeout
		return nil
	})
}

// New returns a Backend that uses the client. It asks no server. The client stays the caller's:
// close it after the Backend. The Backend uses the client's own KV and bypasses a wrapper in its
// place, so name a namespace with [WithKeyspace]. A client with a user name may not recover at etcd
// 3.4 when the server has forgotten its login, as after a restart; that of [Open] does. New fails
// with ErrInvalid for a client without a connection and for options that are not allowed.
func New(client *clientv3.Client, options ...Option) (*Backend, error) {
	if client == nil || client.ActiveConnection() == nil {
		return nil, invalid("the client is nil, or has no connection: make one with clientv3.New")
	}
	b := &Backend{client: client, layout: DefaultKeyspace, presence: DefaultPresence,
		timeout: DefaultTimeout, claims: make(map[identity]*claim),
		watches: make(map[string]*watch),
		kv:      clientv3.NewKVFromKVClient(watched{clientv3.RetryKVClient(client)}, client)}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		if err := o.apply(b); err != nil {
			return nil, err
		}
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	unrepeated := pb.NewLeaseClient(client.ActiveConnection())
	b.leases = &leases{client: hasty{clientv3.RetryLeaseClient(client), unrepeated}, ctx: b.ctx,
		limit: b.timeout, ended: &b.running, current: make(map[class]*lease),
		grants: make(map[class]*flight), all: make(map[clientv3.LeaseID]*lease)}
	return b, nil
}

// Shares implements driver.Sharer: it returns true.
func (b *Backend) Shares() bool { return true }

// CheckTTL implements driver.Limited: a TTL is [MinTTL] at least.
func (b *Backend) CheckTTL(ttl time.Duration) error { return checkTTL(ttl) }

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL {
		return invalid("TTL %v: must be at least %v, as etcd counts leases in whole seconds", ttl,
			MinTTL)
	}
	return nil
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Close ends the Backend. Later calls fail with ErrUnavailable, and calls under way with
// ErrUnavailable or ErrUnknown. It delivers no more notices. Keys that it holds stay held until
// their TTLs are over, or up to a third and a second longer. Its waiters leave their queues. Close
// waits for etcd for a second at most. It closes a client that [Open] has made. Closing twice is
// safe.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.subscribers = nil
	for _, c := range b.claims {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	b.mu.Unlock()
	b.cancel()
	b.turns.close()
	b.leases.close()
	b.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var revoking sync.WaitGroup
	for _, x := range b.leases.idle(b.leasesOfHolders()) {
		revoking.Go(func() { b.leases.revoke(ctx, x) })
	}
	revoking.Wait()
	if !b.owned {
		return nil
	}
	if err := b.client.Close(); err != nil && err != context.Canceled {
		return fmt.Errorf("etcdhold: %w", err)
	}
	return nil
}

// keyspaceOf is the keyspace that a path names.
func keyspaceOf(path string) string {
	path = strings.Trim(path, "/")
	if path == "" {
		return DefaultKeyspace
	}
	return path + "/"
}
