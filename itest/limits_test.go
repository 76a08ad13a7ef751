//go:build unix

package itest

import (
	"context"
	"io"
	"net"
	"net/rpc"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/itest/counters"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

// Each documented limit, one by one, on real servers. What the laboratory meets by chance is done
// here on purpose.

// lease is long: nothing here waits for one to end, unless it says so.
const lease = time.Minute

func servers(t *testing.T, count int, persistence lab.Persistence) []*lab.Node {
	t.Helper()
	nodes, stop, err := lab.StartNodes(t.Context(), t.TempDir(), count, persistence)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return nodes
}

// locker returns a separate client: of a Redlock with the quarantine switched off, or of a single
// Redis.
func locker(t *testing.T, nodes []*lab.Node, options ...holdfast.Option) *holdfast.Locker {
	t.Helper()
	var backends []driver.Backend
	for _, n := range nodes {
		b, err := redishold.Open(t.Context(), "redis://"+n.Addr, redishold.WithoutConnecting())
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, b)
	}
	backend := backends[0]
	if len(backends) > 1 {
		var err error
		if backend, err = quorum.New(backends, quorum.WithGuard(0)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := holdfast.New(backend,
		append([]holdfast.Option{holdfast.WithTTL(lease), holdfast.WithPrefix("lock:")},
			options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		backend.Close()
	})
	return l
}

// acquire gets the lock now or fails the test. It tries again, because a single try may find a
// connection that is broken already.
func acquire(t *testing.T, l *holdfast.Locker) *holdfast.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lease/2)
	defer cancel()
	for {
		lock, err := l.Acquire(ctx, "key")
		if err == nil {
			return lock
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// twoHolders checks that the limit was reached, and that tokens still tell the holders apart.
func twoHolders(t *testing.T, first, second *holdfast.Lock) {
	t.Helper()
	if err := first.Err(); err != nil {
		t.Errorf("the first holder knows: %v", err)
	}
	if first.Token() >= second.Token() {
		t.Errorf("token %d was followed by %d", first.Token(), second.Token())
	}
}

func TestR39_ClockSetForwardGivesTwoHolders(t *testing.T) {
	nodes := servers(t, 1, lab.Memory)
	first := acquire(t, locker(t, nodes))
	if err := nodes[0].SetClock(2 * lease); err != nil {
		t.Fatal(err)
	}
	twoHolders(t, first, acquire(t, locker(t, nodes)))
}

func TestK5_ClockSetBackOnlyDelays(t *testing.T) {
	nodes := servers(t, 1, lab.Memory)
	l := locker(t, nodes)
	first := acquire(t, l)
	if err := nodes[0].SetClock(-2 * lease); err != nil {
		t.Fatal(err)
	}
	if lock, err := locker(t, nodes).TryAcquire(t.Context(), "key"); err == nil {
		t.Errorf("token %d beside %d", lock.Token(), first.Token())
	}
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	acquire(t, locker(t, nodes))
}

// K1: the clock of one node jumps while another one cannot be reached, and the one that was not
// reached before is back.
func TestK1R39_ForwardJumpOfOneNode(t *testing.T) {
	nodes := servers(t, 3, lab.Memory)
	nodes[2].Kill() // not frozen: it would find the request of the first one when it goes on
	first := acquire(t, locker(t, nodes))
	if err := nodes[2].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].SetClock(2 * lease); err != nil {
		t.Fatal(err)
	}
	nodes[1].Freeze()
	defer nodes[1].Thaw()
	twoHolders(t, first, acquire(t, locker(t, nodes)))
}

// R29: three of five, as the pattern has it, here with three nodes: one that had granted the lock
// forgets it.
func TestR29_RestartWithoutDataAndWithoutQuarantine(t *testing.T) {
	nodes := servers(t, 3, lab.Memory)
	nodes[2].Kill() // not frozen: it would find the request of the first one when it goes on
	first := acquire(t, locker(t, nodes))
	if err := nodes[2].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	nodes[1].Freeze()
	defer nodes[1].Thaw()
	twoHolders(t, first, acquire(t, locker(t, nodes)))
}

func TestR31_PowerFailureTakesWhatWasNotSynced(t *testing.T) {
	nodes := servers(t, 1, lab.EverySec)
	synced := nodes[0].Written()
	first := acquire(t, locker(t, nodes))
	if err := nodes[0].PowerFailure(synced); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	twoHolders(t, first, acquire(t, locker(t, nodes)))
}

// What was answered is on the disk, and survives the loss of all that is not.
func TestR31_FsyncAlwaysKeepsLocks(t *testing.T) {
	nodes := servers(t, 1, lab.Always)
	first := acquire(t, locker(t, nodes))
	if err := nodes[0].PowerFailure(nil); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	if lock, err := locker(t, nodes).TryAcquire(t.Context(), "key"); err == nil {
		t.Errorf("token %d beside %d", lock.Token(), first.Token())
	}
}

// guarded is a store that refuses smaller tokens, and a client of it.
func guarded(t *testing.T) (socket string, store *rpc.Client) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	r, err := counters.Open(socket, filepath.Join(t.TempDir(), "db"), func(key, text string) {
		t.Errorf("%s: %s", key, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return socket, dial(t, socket)
}

func dial(t *testing.T, socket string) *rpc.Client {
	t.Helper()
	store, err := rpc.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// enter tells the store of a holder, as every holder does first.
func enter(t *testing.T, store *rpc.Client, lock *holdfast.Lock, owner string) {
	t.Helper()
	var reply counters.Reply
	if err := store.Call("Counters.Do", counters.Args{Key: lock.Key(), Owner: owner,
		Token: uint64(lock.Token()), Enter: true}, &reply); err != nil || !reply.Accepted {
		t.Fatalf("the rightful holder %s was refused: %v", owner, err)
	}
}

// K3: a process is stopped after it has looked at its lock and before it writes.
func TestK3_PauseAfterTheCheckIsRefusedByTheGuard(t *testing.T) {
	nodes := servers(t, 1, lab.Memory)
	socket, store := guarded(t)
	paused, err := lab.StartClient(build(t), t.TempDir(),
		job.Job{Keys: []string{"key"}, TTL: lease, Late: true, Counters: socket}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer paused.Stop()
	if err := paused.Await("checked"); err != nil {
		t.Fatal(err)
	}
	paused.Freeze()
	// For the server the lease runs out now, as if the process were stopped for that long.
	if err := nodes[0].SetClock(2 * lease); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, locker(t, nodes))
	enter(t, store, next, "next")
	paused.Order()
	paused.Thaw()
	if err := paused.Await(history.Refused); err != nil {
		t.Error(err)
	}
}

// K4: the write is sent in time, and arrives when the lock is somebody else's.
func TestK4_LateWriteIsRefusedByTheGuard(t *testing.T) {
	nodes := servers(t, 1, lab.Memory)
	socket, store := guarded(t)
	first := acquire(t, locker(t, nodes, holdfast.WithTTL(3*time.Second),
		holdfast.WithoutRenewal()))
	enter(t, store, first, "first")

	network := filepath.Join(t.TempDir(), "n")
	deliver := slowNetwork(t, network, socket)
	var reply counters.Reply
	write := dial(t, network).Go("Counters.Do", counters.Args{Key: "key", Owner: "first",
		Token: uint64(first.Token())}, &reply, nil)

	next := acquire(t, locker(t, nodes)) // when the lease has run out
	enter(t, store, next, "next")
	deliver()
	<-write.Done
	if write.Error != nil || reply.Accepted {
		t.Errorf("a write with token %d was accepted after %d: %v", first.Token(),
			next.Token(), write.Error)
	}
}

// slowNetwork listens on a socket. It passes what one client sends on to the other socket when it
// is told to.
func slowNetwork(t *testing.T, socket, target string) (deliver func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	told := make(chan struct{})
	go func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		<-told
		store, err := net.Dial("unix", target)
		if err != nil {
			return
		}
		defer store.Close()
		go io.Copy(store, client)
		io.Copy(client, store)
	}()
	return func() { close(told) }
}
