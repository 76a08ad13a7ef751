package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// brief is a context that ends while a call hangs.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// unanswered acquires where no answer comes. On a busy machine the context may end before anything
// is sent; then it asks again.
func unanswered(t *testing.T, b *redishold.Backend, claim driver.Claim) {
	t.Helper()
	testserver.Eventually(t, "the acquisition is sent", func() error {
		_, err := b.Acquire(brief(t), claim)
		if !errors.Is(err, driver.ErrUnknown) && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Acquire without an answer: %v", err)
		}
		return testserver.Not(errors.Is(err, driver.ErrUnknown), "%v", err)
	})
}

// granted asks until the claim is granted, whatever faults there are.
func granted(t *testing.T, b *redishold.Backend, claim driver.Claim) driver.Result {
	t.Helper()
	var result driver.Result
	testserver.Eventually(t, "the claim is granted", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := b.Acquire(ctx, claim)
		if driver.Permanent(err) {
			t.Fatal(err)
		}
		result = r
		return errors.Join(err, testserver.Not(r.State == driver.Held, "%v, held by %s",
			r.State, r.Holder))
	})
	return result
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	server.Kill()
	testserver.Eventually(t, "the connection is known to be gone", func() error {
		_, err := b.Acquire(t.Context(), claim)
		if !errors.Is(err, driver.ErrUnknown) && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Acquire from a dead server: %v", err)
		}
		return testserver.Not(errors.Is(err, driver.ErrUnavailable) &&
			strings.Contains(err.Error(), "refused"), "%v", err)
	})
	if _, err := b.Renew(t.Context(), []driver.Claim{claim}); !errors.Is(err,
		driver.ErrUnavailable) || driver.Permanent(err) {
		t.Errorf("Renew at a dead server: %v", err)
	}
	server.Run(t)
	// It has forgotten everything.
	results, err := b.Renew(t.Context(), []driver.Claim{claim})
	if err != nil || results[0].State != driver.Lost {
		t.Errorf("Renew after the restart: %+v, %v", results, err)
	}
	works(t, b)
}

func TestR30_CleanRestartWithAOFKeepsLocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("everysec"))
	b := open(t, server.URL())
	claim, short := newClaim("k"), newClaim("short")
	short.TTL = time.Second
	first := mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), short))
	server.Shutdown(t)
	// The TTL runs while the server is off.
	elapse(t, short.TTL)
	server.Run(t)
	mustBe(t, "the lock is kept",
		driver.Busy)(b.Acquire(t.Context(),
		driver.Claim{Key: "k", Owner: "other", TTL: time.Second}))
	granted(t, b, newClaim("short"))
	results, err := b.Renew(t.Context(), []driver.Claim{claim})
	if err != nil || results[0].State != driver.Held {
		t.Errorf("Renew after the restart: %+v, %v", results, err)
	}
	if again := granted(t, b, claim); again.Token <= first.Token {
		t.Errorf("token %d after the restart, %d before", again.Token, first.Token)
	}
}

func TestR31_FsyncAlwaysSurvivesKill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	b := open(t, server.URL()+"?durable=always")
	b.Guard(time.Hour) // exempt
	claim := newClaim("k")
	first := mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	server.Kill()
	server.Run(t)
	testserver.Eventually(t, "the server answers", func() error {
		r, err := b.Acquire(t.Context(), newClaim("k"))
		if err == nil && r.State != driver.Busy {
			t.Fatalf("Acquire after the restart: %+v", r)
		}
		return err
	})
	if again := granted(t, b, claim); again.Token <= first.Token {
		t.Errorf("token %d after the restart, %d before", again.Token, first.Token)
	}
}

func TestR32_QuarantineBoundToTheRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("everysec")) // may forget
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL())
	b.Guard(time.Hour)
	var q *driver.QuarantineError
	_, err := b.Acquire(t.Context(), newClaim("k"))
	if !errors.As(err, &q) || q.Remaining > time.Hour || q.Remaining < 30*time.Minute ||
		driver.Permanent(err) {
		t.Errorf("Acquire from a fresh server: %v", err)
	}
	_, err = b.Renew(t.Context(), []driver.Claim{newClaim("k")})
	if !errors.As(err, &q) {
		t.Errorf("Renew at a fresh server: %v", err)
	}
	mustBe(t, "release is served", driver.Lost)(b.Release(t.Context(), newClaim("k")))
	// A guard that the server has been up for is over, and stays so over a new connection to the
	// same run.
	b.Guard(newClaim("k").TTL)
	tiny := newClaim("k")
	tiny.TTL = time.Second
	b.Guard(time.Second)
	granted(t, b, tiny)
	proxy.Break()
	granted(t, b, tiny)
}

// Requests from before the connection broke may arrive later. They do not take effect after what
// was sent since.
func TestStragglersOfABrokenConnectionAreStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL())
	claim := newClaim("k")
	mustBe(t, "the connection is there", driver.Lost)(b.Release(t.Context(), claim))
	deliver := proxy.Strand()
	unanswered(t, b, claim)
	proxy.BreakClients()
	testserver.Eventually(t, "released over a new connection", func() error {
		r, err := b.Release(t.Context(), claim)
		if err == nil && r.State != driver.Lost {
			t.Fatalf("Release: %v", r.State)
		}
		return err
	})
	deliver()
	// What was delivered has been dealt with when a later connection is answered.
	server.Do(t, "PING")
	if value := server.Do(t, "GET", "k"); value != nil {
		t.Errorf("the acquisition took effect after its release: %v", value)
	}
	granted(t, b, newClaim("k"))
}

func TestR17_ReleaseFollowsAcquireThroughAFreeze(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	mustBe(t, "the connection is there", driver.Lost)(b.Release(t.Context(), newClaim("k")))
	server.Freeze()
	var claims []driver.Claim
	for i := range 20 {
		claim := newClaim(fmt.Sprint("k", i))
		claims = append(claims, claim)
	}
	var calls sync.WaitGroup
	ctx := brief(t)
	for _, claim := range claims {
		calls.Go(func() {
			_, err := b.Acquire(ctx, claim)
			unsent := errors.Is(err, driver.ErrUnavailable) // on a busy machine it may end first
			if !unsent && !errors.Is(err, driver.ErrUnknown) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire at a frozen server: %v", err)
			}
		})
	}
	calls.Wait()
	ctx = brief(t)
	unsent := make([]bool, len(claims))
	for i, claim := range claims {
		calls.Go(func() {
			_, err := b.Release(ctx, claim)
			unsent[i] = errors.Is(err, driver.ErrUnavailable)
			if !unsent[i] && !errors.Is(err, driver.ErrUnknown) {
				t.Errorf("Release at a frozen server: %v", err)
			}
		})
	}
	calls.Wait()
	if !slices.Contains(unsent, false) {
		t.Fatal("no release was sent: there is nothing to see")
	}
	server.Thaw()
	for i, claim := range claims {
		if unsent[i] {
			continue
		}
		mustBe(t, "nothing is left behind", driver.Lost)(b.Release(t.Context(), claim))
		granted(t, b, newClaim(claim.Key))
	}
}

// More requests than a connection has room for, at a server that hangs: each returns when its
// context ends, and when the server comes back all is well.
func TestFrozenServerAndManyCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL())
	mustBe(t, "the connection is there", driver.Lost)(b.Release(t.Context(), newClaim("k")))
	server.Freeze()
	frozen := time.Now()
	var calls sync.WaitGroup
	ctx := brief(t)
	for i := range 3000 {
		calls.Go(func() {
			_, err := b.Acquire(ctx, newClaim(fmt.Sprint("k", i%100)))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire at a frozen server: %v", err)
			}
		})
	}
	calls.Wait()
	server.Thaw()
	server.Do(t, "FLUSHALL")
	// A connection that is silent for seconds is rightly given up.
	short := time.Since(frozen) < time.Second
	testserver.Eventually(t, "the abandoned requests are through", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Release(ctx, newClaim("k"))
		return err
	})
	server.Do(t, "FLUSHALL")
	works(t, b)
	if n := proxy.Made(); n != 1 && short {
		t.Errorf("%d connections were made: some call had to wait for the first one to be given up",
			n)
	}
}

// The library pings a silent connection and gives it up; then a new one is made, by itself.
func TestFrozenServerForLong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL())
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	proxy.SetReplies(redistest.Hold)
	call := make(chan error, 1)
	go func() {
		_, err := b.Renew(t.Context(), []driver.Claim{claim}) // without a time limit of its own
		call <- err
	}()
	if err := <-call; !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Renew over a silent connection: %v", err)
	}
	proxy.SetReplies(redistest.Pass)
	granted(t, b, claim)
}

func TestConnectionKilledUnderAWaiter(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock))
	b, other := open(t, server.URL()), open(t, server.URL())
	first, second := newClaim("k"), newClaim("k")
	mustBe(t, "acquire", driver.Held)(other.Acquire(t.Context(), first))
	mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), second))
	stay(t, clock)
	// All connections, and so that of the subscriber.
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	testserver.Eventually(t, "released", func() error {
		_, err := other.Release(t.Context(), first)
		return err
	})
	if got := server.String(t, "GET", "k"); got != second.Owner {
		t.Fatalf("after the release %q holds the key, not the waiter", got)
	}
	// The notice is lost; the heartbeat finds the grant.
	granted(t, b, second)
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), second))
	works(t, b)
}

func TestScriptsFlushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	for range 3 {
		server.Do(t, "SCRIPT", "FLUSH")
		works(t, b)
	}
	// Each script was sent once after each flush, and nothing else was repeated.
	server.Do(t, "CONFIG", "RESETSTAT")
	server.Do(t, "SCRIPT", "FLUSH")
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	for range 10 {
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
		mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	}
	if stats := server.Info(t, "cmdstat_eval"); !strings.HasPrefix(stats, "calls=2,") {
		t.Errorf("EVAL: %s; want one call for each of two scripts", stats)
	}
}

func TestFlushedUnderAHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	claims := []driver.Claim{newClaim("a"), newClaim("b")}
	for _, claim := range claims {
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	}
	server.Do(t, "FLUSHALL")
	results, err := b.Renew(t.Context(), claims)
	if err != nil || results[0].State != driver.Lost || results[1].State != driver.Lost {
		t.Errorf("Renew after FLUSHALL: %+v, %v", results, err)
	}
	if server.Int(t, "DBSIZE") != 0 {
		t.Errorf("something was created again: %v", server.Do(t, "KEYS", "*"))
	}
}

// Tokens come from clients' clocks, and rise even if these differ by years.
func TestClientClocksFarOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	now := driver.Token(time.Now().UnixMicro())
	const year = 365 * 24 * 3600 * 1e6
	var last driver.Token
	for _, offset := range []int64{0, 10 * year, -10 * year, 0, 20 * year, -30 * year} {
		claim := newClaim("k")
		claim.Token = now + driver.Token(offset)
		r := mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
		if r.Token <= last || r.Token < claim.Token {
			t.Errorf("token %d after %d, proposed %d", r.Token, last, claim.Token)
		}
		last = r.Token
		mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	}
}

func TestServerRefusals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	held := newClaim("held")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), held))
	acquire := func() error { _, err := b.Acquire(t.Context(), newClaim("k")); return err }

	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if err := acquire(); !protocol.IsServerError(err, "OOM") ||
		!errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) {
		t.Errorf("without memory: %v", err)
	}
	// What is held can still be renewed and released.
	results, err := b.Renew(t.Context(), []driver.Claim{held})
	if err != nil || results[0].State != driver.Held {
		t.Errorf("Renew without memory: %+v, %v", results, err)
	}
	mustBe(t, "release without memory", driver.Held)(b.Release(t.Context(), held))
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")

	server.Do(t, "LPUSH", "list", "x")
	if _, err := b.Acquire(t.Context(), newClaim("list")); !protocol.IsServerError(err,
		"WRONGTYPE") || !driver.Permanent(err) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("of a list: %v", err)
	}
	if _, err := b.Release(t.Context(), newClaim("list")); !protocol.IsServerError(err,
		"WRONGTYPE") || !driver.Permanent(err) {
		t.Errorf("release of a list: %v", err)
	}
	if _, err := b.Inspect(t.Context(), "list"); !protocol.IsServerError(err, "WRONGTYPE") {
		t.Errorf("inspection of a list: %v", err)
	}
	good := newClaim("good")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), good))
	results, err = b.Renew(t.Context(), []driver.Claim{newClaim("list"), good})
	if err != nil || !protocol.IsServerError(results[0].Err, "WRONGTYPE") ||
		results[1].State != driver.Held {
		t.Errorf("Renew with a list among the keys: %+v, %v", results, err)
	}

	server.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	if err := acquire(); !protocol.IsServerError(err, "NOREPLICAS") ||
		!errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) {
		t.Errorf("without replicas: %v", err)
	}
	server.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")

	// A primary that is made a replica tells so once by its own words, and then at each new
	// connection. It may be one again soon.
	server.Do(t, "REPLICAOF", "127.0.0.1", "1")
	for range 3 {
		if err := acquire(); !errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) ||
			!strings.Contains(err.Error(), "replica") {
			t.Errorf("of a replica: %v", err)
		}
	}
	server.Do(t, "REPLICAOF", "NO", "ONE")
	granted(t, b, newClaim("k"))
}

func TestServerLoading(t *testing.T) {
	t.Parallel()
	args := []string{"--key-load-delay", "20000", "--rdbcompression", "no"}
	if redistest.AtLeast(t, 7, 0) {
		args = append(args, "--enable-debug-command", "yes",
			"--loading-process-events-interval-bytes", "1024")
	}
	server := redistest.Start(t, redistest.WithArgs(args...))
	b := open(t, server.URL())
	// older servers answer every 2 MiB only
	server.Do(t, "DEBUG", "POPULATE", "500", "filler", "20000")
	go server.Try("DEBUG", "RELOAD")
	testserver.Eventually(t, "the server is loading", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := b.Acquire(ctx, newClaim("other"))
		if driver.Permanent(err) {
			t.Fatal(err)
		}
		return testserver.Not(protocol.IsServerError(err, "LOADING") &&
			errors.Is(err, driver.ErrUnavailable), "%v", err)
	})
	granted(t, b, newClaim("k"))
}

func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL()+"?wait=1&wait-timeout=50ms")
	patient := open(t, server.URL()+"?wait=1&wait-timeout=1s") // with a replica that is slow
	claim := newClaim("k")
	if _, err := b.Acquire(t.Context(), claim); !errors.Is(err, driver.ErrUnknown) ||
		!strings.Contains(err.Error(), "0 replicas confirmed") {
		t.Errorf("Acquire without a replica: %v", err)
	}
	mustBe(t, "the primary has it", driver.Held)(b.Release(t.Context(), claim))
	host, port, _ := strings.Cut(server.Addr, ":")
	replica := redistest.Start(t, redistest.WithArgs("--replicaof", host, port))
	testserver.Eventually(t, "the replica is up to date", func() error {
		return testserver.Not(replica.Info(t, "master_link_status") == "up", "not yet")
	})
	granted(t, b, claim)
	if got := replica.String(t, "GET", "k"); got != claim.Owner {
		t.Errorf("the replica has %q", got)
	}
	other := newClaim("patient")
	granted(t, patient, other)
	testserver.Eventually(t, "its renewal is confirmed", func() error {
		results, err := patient.Renew(t.Context(), []driver.Claim{other})
		return errors.Join(err, testserver.Not(err != nil || results[0].State == driver.Held,
			"%+v", results))
	})
	replica.Freeze()
	results, err := b.Renew(t.Context(), []driver.Claim{claim})
	if err != nil || results[0].State != driver.Unknown ||
		!errors.Is(results[0].Err, driver.ErrUnknown) {
		t.Errorf("Renew with a frozen replica: %+v, %v", results, err)
	}
	replica.Thaw()
}

// What others keep under the prefix may be large, and the answers come over the connection that
// renews.
func TestListOfLargeForeignValues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	claim := newClaim("lock:k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	client, err := server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const large, count = 1 << 20, 60
	for i := range count {
		if _, err := client.Try("SETRANGE", fmt.Sprint("lock:large", i), fmt.Sprint(large),
			"x"); err != nil {
			t.Fatal(err)
		}
	}
	sent := func() (n int) {
		fmt.Sscan(server.Info(t, "total_net_output_bytes"), &n)
		return n
	}
	before := sent()
	owners := make(map[string]string)
	for entry, err := range b.List(t.Context(), "lock:") {
		if err != nil {
			t.Fatal(err)
		}
		owners[entry.Key] = entry.Holder.Owner
		if _, err := b.Inspect(t.Context(), entry.Key); err != nil {
			t.Fatal(err)
		}
	}
	if after := sent(); after-before > large {
		t.Errorf("the server sent %d bytes", after-before)
	}
	if owners[claim.Key] != claim.Owner || len(owners) != count+1 {
		t.Errorf("%d keys; %s is held by %q", len(owners), claim.Key, owners[claim.Key])
	}
	// A key that goes while it is listed must not be shown as held by nobody.
	server.Do(t, "SET", "lock:empty", "")
	for entry, err := range b.List(t.Context(), "lock:empty") {
		if err != nil || entry.Holder.Owner != "" {
			t.Errorf("%+v, %v", entry, err)
		}
	}
}

// Another program's value under a lock's key may be as long as the server allows. Only as much of
// it is needed as an owner value has, and the connection that renews has to carry the answer.
func TestLongForeignValueStaysOnTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, "SETRANGE", "long", "41943039", "x")
	number := func(field string) int {
		n, err := strconv.Atoi(server.Info(t, field))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	sent := func() int { return number("total_net_output_bytes") }
	direct := open(t, server.URL())
	for name, b := range map[string]*redishold.Backend{
		"own connection": direct,
		"shared client":  newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}}),
	} {
		claim := newClaim("long")
		before := sent()
		for range 2 { // by plain commands, and by the script
			if r := mustBe(t, name,
				driver.Busy)(b.Acquire(t.Context(), claim)); len(r.Holder) > 1024 {
				t.Errorf("%s: a holder of %d bytes", name, len(r.Holder))
			}
		}
		results, err := b.Renew(t.Context(), []driver.Claim{claim})
		if err != nil || results[0].State != driver.Lost {
			t.Errorf("%s: Renew: %+v, %v", name, results, err)
		}
		turn := claim
		turn.Block = 8
		results, err = b.Renew(t.Context(), []driver.Claim{turn})
		if err != nil || results[0].State != driver.Lost {
			t.Errorf("%s: Renew of a turn: %+v, %v", name, results, err)
		}
		if _, err := b.Inspect(t.Context(), claim.Key); err != nil {
			t.Errorf("%s: Inspect: %v", name, err)
		}
		for range 2 { // with somebody in the queue, and without
			if r, err := b.Release(t.Context(), claim); err != nil || r.State == driver.Held {
				t.Errorf("%s: Release: %v, %v", name, r.State, err)
			}
		}
		if n := sent() - before; n > 1<<20 {
			t.Errorf("%s: the server sent %d bytes", name, n)
		}
		// A copy for a script takes a busy server seconds, in which it serves no other client.
		if n := number("used_memory_lua"); n > 10<<20 {
			t.Errorf("%s: the scripts take %d bytes of the server's memory", name, n)
		}
	}
	// An empty value is also a holder's.
	server.Do(t, "SET", "empty", "")
	b := direct
	for range 2 {
		mustBe(t, "empty", driver.Busy)(b.Acquire(t.Context(), newClaim("empty")))
	}
}
