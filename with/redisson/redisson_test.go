//go:build unix

package withredisson_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	withredisson "github.com/holdfast-go/holdfast/with/redisson"
)

const patience = 2 * time.Minute

// server is the socket of a server for the example.
var server string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	testserver.PlayHolder(func(_ context.Context, address string) (driver.Backend, error) {
		return withredisson.New(redis.NewClient(&redis.Options{Addr: address}))
	})
	path, err := testserver.Find("redis-server", "redis-server")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "redisson")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server = filepath.Join(dir, "socket")
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server})
	defer client.Close()
	process := &testserver.Process{Path: path, Dir: dir, Args: []string{"--port", "0", "--save", "",
		"--unixsocket", server, "--dir", dir},
		Ready: func() error { return client.Ping(context.Background()).Err() }}
	defer process.Remove()
	if err := process.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	flag.Set("test.parallel", "8") // they mostly wait
	return m.Run()
}

// open returns a Backend of its own client, both closed at the end of the test.
func open(t testing.TB, s *redistest.Server) *withredisson.Backend {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	b, err := withredisson.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		client.Close()
	})
	return b
}

func newLocker(t testing.TB, s *redistest.Server, options ...holdfast.Option) *holdfast.Locker {
	t.Helper()
	l, err := holdfast.New(open(t, s), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// warm makes the server know the scripts. If it does not know a script, a request whose caller does
// not wait any more does nothing.
func warm(t testing.TB, b *withredisson.Backend) {
	t.Helper()
	c := driver.Claim{Key: "warm", Owner: driver.NewOwner(""), TTL: time.Minute}
	if r, err := b.Acquire(within(t), c); err != nil || r.State != driver.Held {
		t.Fatal(r.State, err)
	}
	if r, err := b.Renew(within(t), []driver.Claim{c}); err != nil || r[0].State != driver.Held {
		t.Fatal(r, err)
	}
	if r, err := b.Release(within(t), c); err != nil || r.State != driver.Held {
		t.Fatal(r.State, err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	warm(t, open(t, server))
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			server.Do(t, "FLUSHALL")
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend { return open(t, server) },
				Lose: func(t testing.TB, key string) { server.Do(t, "DEL", key) },
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				Forget: func(t testing.TB) {
					server.Kill()
					server.Run(t)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, server.Addr, key)
				},
			}
		},
		Capabilities: drivertest.Capabilities{Notify: true, Holder: true, ExpiresIn: true,
			Expiry: true, Outlives: true,
			CanLose: true, CanFreeze: true, CanForget: true, CanKillHolder: true},
		TTL: 8 * time.Second,
	})
}

// rlock is a thread of a service that locks with Redisson, by its published layout: a hash with a
// count for the thread, a TTL, and a message when the lock is released.
type rlock struct {
	t      testing.TB
	client *redis.Client
	thread string
}

func newRLock(t testing.TB, s *redistest.Server, thread string) *rlock {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { client.Close() })
	return &rlock{t, client, "8743c9c0-0795-4907-87fd-6c719a6b4586:" + thread}
}

var (
	lockRLock = redis.NewScript(`
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
	redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return -1
end
return redis.call('PTTL', KEYS[1])`)
	unlockRLock = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left > 0 then return left end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 0`)
)

// tryLock reports whether the thread has the lock.
func (r *rlock) tryLock(key string, ttl time.Duration) bool {
	r.t.Helper()
	left, err := lockRLock.Run(r.t.Context(), r.client, []string{key}, r.thread,
		ttl.Milliseconds()).Int64()
	if err != nil {
		r.t.Fatal(err)
	}
	return left == -1
}

// unlock returns how many times the thread still has the lock.
func (r *rlock) unlock(key string) int64 {
	r.t.Helper()
	left, err := unlockRLock.Run(r.t.Context(), r.client,
		[]string{key, "redisson_lock__channel:{" + key + "}"}, r.thread).Int64()
	if err != nil {
		r.t.Fatal(err)
	}
	return left
}

func TestBothExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	java, l := newRLock(t, s, "1"), newLocker(t, s)

	lock, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if java.tryLock("k", time.Minute) {
		t.Fatal("Redisson locks what we hold")
	}
	if left := java.unlock("k"); left != -1 {
		t.Fatalf("Redisson unlocks what we hold: %d", left)
	}
	if err := lock.Release(within(t)); err != nil {
		t.Fatal(err)
	}

	for range 2 { // it counts
		if !java.tryLock("k", time.Minute) {
			t.Fatal("Redisson cannot lock what is free, or its own")
		}
	}
	var held *holdfast.HeldError
	if _, err := l.TryAcquire(within(t), "k"); !errors.As(err, &held) {
		t.Fatalf("we lock what Redisson holds: %v", err)
	}
	if held.ExpiresIn <= 0 || held.ExpiresIn > time.Minute {
		t.Errorf("the lease of Redisson is said to last %v", held.ExpiresIn)
	}
	if left := java.unlock("k"); left != 1 {
		t.Fatalf("Redisson still has it %d times; want once", left)
	}
	if _, err := l.TryAcquire(within(t), "k"); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatalf("we lock what Redisson holds once: %v", err)
	}
	java.unlock("k")
	second, err := l.TryAcquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if second.Token() <= lock.Token() {
		t.Errorf("token %d after %d", second.Token(), lock.Token())
	}
}

// A waiter in Go hears that Redisson has released.
func TestHearsReleaseByRedisson(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	java, b := newRLock(t, s, "1"), open(t, s)
	if !java.tryLock("k", time.Minute) {
		t.Fatal("it is not free")
	}
	freed := make(chan driver.Notice, 16)
	defer b.Notify(func(n driver.Notice) { freed <- n })()
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute, Queue: true}
	if r, err := b.Acquire(within(t), claim); err != nil || r.State != driver.Busy ||
		r.Holder != java.thread {
		t.Fatalf("%v of %q, %v; want busy of %q", r.State, r.Holder, err, java.thread)
	}
	next := func() {
		t.Helper()
		select {
		case n := <-freed:
			if n.Kind != driver.Freed || n.Key != "k" {
				t.Errorf("notice %+v", n)
			}
		case <-within(t).Done():
			t.Fatal("no notice")
		}
	}
	next() // the channel is subscribed: a release before would not have been heard
	java.unlock("k")
	next()
	if r, err := b.Acquire(within(t), claim); err != nil || r.State != driver.Held {
		t.Fatalf("%v, %v; want held", r.State, err)
	}
}

// A waiter that gives up leaves no subscription.
func TestWaiterThatGivesUp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if !newRLock(t, s, "1").tryLock("k", time.Hour) {
		t.Fatal("it is not free")
	}
	b := open(t, s)
	b.SetPatience(1500 * time.Millisecond) // the kernel asks once a second
	l, err := holdfast.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	subscribed := func(want string) {
		t.Helper()
		testserver.Eventually(t, want+" subscription", func() error {
			got := fmt.Sprint(s.Do(t, "PUBSUB", "NUMSUB", "redisson_lock__channel:{k}"))
			return testserver.Not(got == "[redisson_lock__channel:{k} "+want+"]", "%s", got)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() {
		_, err := l.Acquire(ctx, "k")
		waited <- err
	}()
	subscribed("1")
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire = %v", err)
	}
	subscribed("0")
}

// When the client is closed first, nobody listens any more. It is not parallel: it looks at all
// goroutines.
func TestClientClosedFirst(t *testing.T) {
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	b, err := withredisson.New(client)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	newRLock(t, s, "1").tryLock("k", time.Hour)
	freed := make(chan driver.Notice, 16)
	defer b.Notify(func(n driver.Notice) { freed <- n })()
	if _, err := b.Acquire(within(t), driver.Claim{Key: "k", Owner: driver.NewOwner(""),
		TTL: time.Minute, Queue: true}); err != nil {
		t.Fatal(err)
	}
	<-freed // it listens
	client.Close()
	testserver.Eventually(t, "nobody listens", func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return testserver.Not(!bytes.Contains(stacks, []byte("(*ears).run")), "%s", stacks)
	})
}

// Close returns even while a subscription is being made at a server that hangs, whatever timeouts
// the client has.
func TestCloseWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var hangs atomic.Bool
	asked := make(chan struct{}, 16)
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: -1, WriteTimeout: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !hangs.Load() {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			conn, nobody := net.Pipe()
			t.Cleanup(func() { nobody.Close() })
			asked <- struct{}{}
			return conn, nil
		}})
	defer client.Close()
	b, err := withredisson.New(client)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Notify(func(driver.Notice) {})()
	newRLock(t, s, "1").tryLock("k", time.Hour)
	warm(t, b)
	hangs.Store(true) // what is connected goes on
	if _, err := b.Acquire(within(t), driver.Claim{Key: "k", Owner: driver.NewOwner(""),
		TTL: time.Minute, Queue: true}); err != nil {
		t.Fatal(err)
	}
	<-asked
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-within(t).Done():
		t.Fatal("Close waits for the server")
	}
}

// A waiter of Redisson hears that we have released.
func TestRedissonHearsRelease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	java, l := newRLock(t, s, "1"), newLocker(t, s)
	for key, channel := range map[string]string{"k": "redisson_lock__channel:{k}",
		"a{b}c": "redisson_lock__channel:a{b}c"} {
		lock, err := l.Acquire(within(t), key)
		if err != nil {
			t.Fatal(err)
		}
		subscription := java.client.Subscribe(within(t), channel)
		defer subscription.Close()
		if _, err := subscription.Receive(within(t)); err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(within(t)); err != nil {
			t.Fatal(err)
		}
		message, err := subscription.ReceiveMessage(within(t))
		if err != nil || message.Payload != "0" {
			t.Errorf("%s: %v, %v; want the message 0", key, message, err)
		}
	}
}

// A renewal with a block says that somebody waits: otherwise the kernel would not release the key.
// This process's own ear does not count.
func TestRenewTellsThatRedissonWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	java, b := newRLock(t, s, "1"), open(t, s)
	freed := make(chan driver.Notice, 16)
	defer b.Notify(func(n driver.Notice) { freed <- n })()
	held := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute}
	if _, err := b.Acquire(within(t), held); err != nil {
		t.Fatal(err)
	}
	waiting := func() bool {
		t.Helper()
		again := held
		again.Block = 8
		r, err := b.Renew(within(t), []driver.Claim{again})
		if err != nil || r[0].State != driver.Held || r[0].Token == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r[0].Waiting
	}
	if waiting() {
		t.Error("somebody waits before anybody does")
	}
	other := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute, Queue: true}
	if _, err := b.Acquire(within(t), other); err != nil {
		t.Fatal(err)
	}
	<-freed // its channel is subscribed
	if waiting() {
		t.Error("our own ear counts as somebody who waits")
	}
	subscription := java.client.Subscribe(within(t), "redisson_lock__channel:{k}")
	defer subscription.Close()
	if _, err := subscription.Receive(within(t)); err != nil {
		t.Fatal(err)
	}
	if !waiting() {
		t.Error("Redisson waits, and is not told of")
	}
}

// A lock that is taken away by force, as by RLock.forceUnlock, is lost.
func TestForcedUnlockIsLoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLocker(t, s, holdfast.WithTTL(time.Second))
	lock, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	s.Do(t, "DEL", "k")
	java := newRLock(t, s, "1")
	if !java.tryLock("k", time.Minute) {
		t.Fatal("it is not free")
	}
	select {
	case <-lock.Done():
	case <-within(t).Done():
		t.Fatal("the loss is not told")
	}
	if err := lock.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("error %v", err)
	}
	lock.Release(within(t))
	if java.unlock("k") != 0 {
		t.Error("the release has taken Redisson's lock")
	}
}

// What other libraries or other types store at the key is not touched.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s)
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute}
	s.Do(t, "SET", "k", "of redishold", "PX", "60000")
	if r, err := b.Acquire(within(t), claim); err != nil || r.State != driver.Busy ||
		r.Holder != "of redishold" || r.ExpiresIn <= 0 {
		t.Errorf("of a string: %+v, %v; want busy", r, err)
	}
	if r, err := b.Release(within(t), claim); err != nil || r.State != driver.Lost {
		t.Errorf("release of a string: %v, %v; want lost", r.State, err)
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "mode", "read", "8743c9c0:1", "1")
	if r, err := b.Acquire(within(t), claim); err != nil || r.State != driver.Busy ||
		r.Holder != "8743c9c0:1" {
		t.Errorf("of a read-write lock: %+v, %v; want busy", r, err)
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "RPUSH", "k", "a")
	_, err := b.Acquire(within(t), claim)
	if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("of a list: %v; want an error for good", err)
	}
	other := driver.Claim{Key: "free", Owner: claim.Owner, TTL: time.Minute}
	if _, err := b.Acquire(within(t), other); err != nil {
		t.Fatal(err)
	}
	r, err := b.Renew(within(t), []driver.Claim{claim, other})
	if err != nil || r[0].State != driver.Lost || r[1].State != driver.Held {
		t.Errorf("renewal of both: %+v, %v; want lost and held", r, err)
	}
}

// An acquisition that the server refuses halfway leaves nothing, as a user without one of the
// commands of the package documentation finds out. A lock without an end would stay for ever.
func TestRefusedHalfwayLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, command := range []string{"type", "hset", "pexpire", "zscore", "zadd"} {
		s.Do(t, "ACL", "SETUSER", "u", "reset", "on", "nopass", "allkeys", "allchannels", "+@all",
			"-"+command)
		client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "u", Password: "p"})
		b, err := withredisson.New(client)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Acquire(within(t), driver.Claim{Key: "k", Owner: driver.NewOwner(""),
			TTL: time.Minute})
		if err == nil || s.Int(t, "EXISTS", "k") != 0 {
			t.Errorf("without %s: %v; left: %v, for another %d ms", command, err,
				s.Do(t, "HGETALL", "k"), s.Int(t, "PTTL", "k"))
		}
		s.Do(t, "DEL", "k")
		b.Close()
		client.Close()
	}
}

// overProxy returns a Backend whose client reaches the server by way of the proxy. The server knows
// the scripts.
func overProxy(t *testing.T) (*redistest.Server, *redistest.Proxy, *withredisson.Backend) {
	t.Helper()
	server := redistest.Start(t)
	proxy, b := proxied(t, server)
	return server, proxy, b
}

// proxied is overProxy for a server that is there.
func proxied(t *testing.T, server *redistest.Server) (*redistest.Proxy, *withredisson.Backend) {
	t.Helper()
	proxy := redistest.NewProxy(t, server)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	b, err := withredisson.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		client.Close()
	})
	warm(t, b)
	return proxy, b
}

// request is a call of a Backend about a claim.
type request = func(context.Context, driver.Claim) (driver.Result, error)

// answers repeats the call until it is answered, over a new connection if need be.
func answers(t *testing.T, call request, claim driver.Claim, want driver.State) {
	t.Helper()
	testserver.Eventually(t, "it is answered", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := call(ctx, claim)
		if err == nil && r.State != want {
			t.Fatalf("%v; want %v", r.State, want)
		}
		return err
	})
}

// unanswered makes the call while no answer comes.
func unanswered(t *testing.T, call request, claim driver.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, claim); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("a call without an answer: %v; want ErrUnknown", err)
	}
}

// A request may arrive after later ones, if its connection was given up. A waiter over several
// nodes gives back what it may have got, and asks again under the same owner value. That is served,
// whatever request of the claim may still arrive, and a request that arrives then changes nothing.
func TestAskedAgainAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, releases := range map[string]bool{"acquires": false, "releases": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, proxy, b := overProxy(t)
			claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Hour}
			call := b.Acquire
			if releases {
				answers(t, b.Acquire, claim, driver.Held)
				call = b.Release
			}
			deliver := proxy.Strand()
			unanswered(t, call, claim)
			proxy.BreakClients()
			if !releases {
				answers(t, b.Release, claim, driver.Lost)
			}
			answers(t, b.Acquire, claim, driver.Held)
			if !releases {
				answers(t, b.Release, claim, driver.Held)
			}
			deliver()
			server.Do(t, "PING")
			if there := fmt.Sprint(server.Do(t, "EXISTS", "k")); (there != "1") == releases {
				t.Errorf("%s keys after the late request", there)
			}
			if releases {
				answers(t, b.Release, claim, driver.Held)
			}
		})
	}
}

// Somebody else may ask for a claim or release it by its owner value. Such a request has a smaller
// number, and is not late.
func TestRequestsOfAnotherClientAreNotLate(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Hour}
	proxy.Strand()
	unanswered(t, b.Acquire, claim)
	proxy.BreakClients()
	answers(t, b.Acquire, claim, driver.Held) // tells of the request before it
	another := open(t, server)
	answers(t, another.Release, claim, driver.Held)
	answers(t, another.Acquire, claim, driver.Held)
}

// If requests of two clients about a claim are late, the server remembers both of them.
func TestLateRequestsOfTwoClients(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	others, other := proxied(t, server)
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Hour}
	answers(t, b.Acquire, claim, driver.Held)
	deliver := proxy.Strand()
	unanswered(t, b.Release, claim)
	proxy.BreakClients()
	answers(t, b.Acquire, claim, driver.Held) // tells of the request before it
	others.Strand()
	unanswered(t, other.Release, claim)
	others.BreakClients()
	answers(t, other.Release, claim, driver.Held) // so does this
	answers(t, b.Acquire, claim, driver.Held)
	deliver()
	server.Do(t, "PING")
	answers(t, b.Release, claim, driver.Held)
}

// A server that is out of memory cannot remember which releases are late, but releases. The next
// request tells it again, also if the lock was lost by then.
func TestLateReleaseOfAServerThatWasOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, found := range []driver.State{driver.Held, driver.Lost} {
		t.Run(found.String(), func(t *testing.T) {
			t.Parallel()
			server, proxy, b := overProxy(t)
			claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Hour}
			answers(t, b.Acquire, claim, driver.Held)
			deliver := proxy.Strand()
			unanswered(t, b.Release, claim)
			proxy.BreakClients()
			if found == driver.Lost {
				server.Do(t, "DEL", "k")
			}
			server.Do(t, "CONFIG", "SET", "maxmemory", "1")
			answers(t, b.Release, claim, found)
			server.Do(t, "CONFIG", "SET", "maxmemory", "0")
			answers(t, b.Acquire, claim, driver.Held)
			deliver()
			server.Do(t, "PING")
			answers(t, b.Release, claim, driver.Held)
		})
	}
}

// A release that nobody waits for any more is still sent, but not as often as it was asked for.
func TestReleasesThatWereGivenUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server)
	warm(t, b)
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Hour}
	answers(t, b.Acquire, claim, driver.Held)
	server.Do(t, "CONFIG", "RESETSTAT")
	server.Freeze()
	for range 10 {
		unanswered(t, b.Release, claim)
	}
	server.Thaw()
	claim.Owner = driver.NewOwner("")
	if r, err := b.Acquire(within(t), claim); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire behind the releases: %v, %v", r.State, err)
	}
	stats := fmt.Sprint(server.Do(t, "INFO", "commandstats"))
	if want := "cmdstat_evalsha:calls=3,"; !strings.Contains(stats, want) {
		t.Errorf("not %s of the first release, the last one and the acquisition: %s", want, stats)
	}
}

// Tokens rise when processes move from one layout to the other.
func TestTokensRiseOverLayouts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s)
	s.Do(t, "ZADD", protocol.KeysOf("k").Fence, "900000000000000", "t")
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute, Token: 7,
		Block: 5}
	r, err := b.Acquire(within(t), claim)
	if err != nil || r.Token != 900000000000001 {
		t.Fatalf("token %d, %v; want the next one after the counter", r.Token, err)
	}
	if got := s.Do(t, "ZSCORE", protocol.KeysOf("k").Fence, "t"); fmt.Sprint(got) !=
		"900000000000005" {
		t.Errorf("the counter is %v; want the end of the block", got)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	if _, err := withredisson.New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	s := redistest.Start(t)
	b := open(t, s)
	good := driver.Claim{Key: "k", Owner: "o", TTL: time.Second}
	names := map[string]string{
		"reserved key": `key "holdfast:f:{0}" is reserved: use one that does not begin with "holdfast:"`,
		"no owner":     `owner value "": must have 1 byte or more, and not be "mode"`,
	}
	for name, change := range map[string]func(*driver.Claim){
		"no key":       func(c *driver.Claim) { c.Key = "" },
		"reserved key": func(c *driver.Claim) { c.Key = "holdfast:f:{0}" },
		"no owner":     func(c *driver.Claim) { c.Owner = "" },
		"owner mode":   func(c *driver.Claim) { c.Owner = "mode" },
		"no TTL":       func(c *driver.Claim) { c.TTL = 0 },
		"token":        func(c *driver.Claim) { c.Token = 1 << 53 },
	} {
		bad := good
		change(&bad)
		if _, err := b.Acquire(t.Context(), bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if want := names[name]; !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q in it", name, err, want)
		}
	}
	if got := fmt.Sprint(s.Do(t, "DBSIZE")); got != "0" {
		t.Errorf("%s keys are left", got)
	}
}
