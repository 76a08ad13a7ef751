package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// patience is longer than any pause of the machine.
const patience = 3 * time.Minute

// foreign is another library. Its methods report whether it says that it was successful.
type foreign interface {
	acquire(key string, ttl time.Duration) bool
	extend(key string, ttl time.Duration) bool
	release(key string) bool
}

func TestRedsync(t *testing.T) {
	t.Parallel()
	check(t, func(t *testing.T, server *redistest.Server) foreign {
		client := newClient(t, server)
		return &redsyncClient{t, redsync.New(goredis.NewPool(client)),
			make(map[string]*redsync.Mutex)}
	})
}

// newClient returns one that waits for its answers, however busy the machine is, and repeats
// nothing: what it has set itself would be another's lock.
func newClient(t *testing.T, server *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1,
		DialTimeout: patience, ReadTimeout: patience})
	t.Cleanup(func() { client.Close() })
	return client
}

type redsyncClient struct {
	t       *testing.T
	redsync *redsync.Redsync
	locks   map[string]*redsync.Mutex
}

func (c *redsyncClient) acquire(key string, ttl time.Duration) bool {
	m := c.redsync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1),
		redsync.WithTimeoutFactor(1)) // of ttl, within which a server has to answer
	err := m.LockContext(c.t.Context())
	if err == nil {
		c.locks[key] = m
	}
	return c.verdict(err)
}

func (c *redsyncClient) extend(key string, _ time.Duration) bool {
	ok, err := c.locks[key].ExtendContext(c.t.Context())
	return c.verdict(err) && ok
}

func (c *redsyncClient) release(key string) bool {
	ok, err := c.locks[key].UnlockContext(c.t.Context())
	return c.verdict(err) && ok
}

// verdict tells "no" from "it went wrong".
func (c *redsyncClient) verdict(err error) bool {
	var taken *redsync.ErrTaken
	if err != nil && !errors.As(err, &taken) && !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		c.t.Fatal(err)
	}
	return err == nil
}

func TestRedisPy(t *testing.T) {
	t.Parallel()
	python := ""
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(candidate, "-c", "import redis").Run() == nil {
			python = candidate
			break
		}
	}
	if python == "" {
		t.Fatal("no python3 with the module redis: install Debian's python3-redis")
	}
	check(t, func(t *testing.T, server *redistest.Server) foreign {
		return startClient(t, exec.Command(python, filepath.Join("clients", "redispy.py"),
			server.URL()))
	})
}

func TestRedlockForNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "redlock.mjs"} {
		data, err := os.ReadFile(filepath.Join("clients", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline",
		"--ignore-scripts", "--fetch-retries=5")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	check(t, func(t *testing.T, server *redistest.Server) foreign {
		cmd := exec.Command("node", "redlock.mjs", server.URL())
		cmd.Dir = dir
		return startClient(t, cmd)
	})
}

// process is a client in another language. It reads lines of an order, a key and milliseconds, and
// answers each with yes or no. Anything else is an error, which ends it.
type process struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func startClient(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &process{t, in, bufio.NewReader(out)}
}

func (p *process) ask(order, key string, ttl time.Duration) bool {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, "%s %s %d\n", order, key, ttl.Milliseconds()); err != nil {
		p.t.Fatalf("%s: %v", order, err)
	}
	answer, err := p.out.ReadString('\n')
	answer = strings.TrimSpace(answer)
	if err != nil || answer != "yes" && answer != "no" {
		p.t.Fatalf("%s: %q, %v", order, answer, err)
	}
	return answer == "yes"
}

func (p *process) acquire(key string, ttl time.Duration) bool { return p.ask("acquire", key, ttl) }
func (p *process) extend(key string, ttl time.Duration) bool  { return p.ask("extend", key, ttl) }
func (p *process) release(key string) bool                    { return p.ask("release", key, 0) }

// check has a library and Holdfast meet on one server.
func check(t *testing.T, start func(*testing.T, *redistest.Server) foreign) {
	server := redistest.Start(t)
	theirs := start(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	backend, err := redishold.Open(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := holdfast.New(backend, holdfast.WithPrefix("lock:"),
		holdfast.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	const minute = time.Minute

	t.Run("ours is refused to them", func(t *testing.T) {
		lock, err := ours.TryAcquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if theirs.acquire("lock:a", minute) {
			t.Fatal("they hold it, too")
		}
		if err := lock.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if !theirs.acquire("lock:a", minute) {
			t.Fatal("our release does not let them in")
		}
		if !theirs.extend("lock:a", minute) || !theirs.release("lock:a") {
			t.Fatal("they could not extend or release what they hold")
		}
	})

	t.Run("what we share is refused to them", func(t *testing.T) {
		claim := func() driver.Claim {
			return driver.Claim{Key: "lock:shared", TTL: minute, Shared: true,
				Owner: driver.NewOwner(driver.OwnerSuffix("reader"))}
		}
		first, second := claim(), claim()
		for _, c := range []driver.Claim{first, second} {
			if r, err := backend.Acquire(ctx, c); err != nil || r.State != driver.Held {
				t.Fatalf("%v, %v", r.State, err)
			}
		}
		if r, err := backend.Release(ctx, first); err != nil || r.State != driver.Held {
			t.Fatalf("%v, %v", r.State, err)
		}
		if theirs.acquire("lock:shared", minute) {
			t.Fatal("they hold it, too")
		}
		if r, err := backend.Release(ctx, second); err != nil || r.State != driver.Held {
			t.Fatalf("%v, %v", r.State, err)
		}
		if !theirs.acquire("lock:shared", minute) {
			t.Fatal("our release does not let them in")
		}
		if r, err := backend.Acquire(ctx, claim()); err != nil || r.State != driver.Busy {
			t.Fatalf("theirs is shared with us: %v, %v", r.State, err)
		}
		if !theirs.release("lock:shared") {
			t.Fatal("they could not release what they hold")
		}
	})

	t.Run("theirs is refused to us", func(t *testing.T) {
		if !theirs.acquire("lock:b", minute) {
			t.Fatal("a free lock is refused to them")
		}
		_, err := ours.TryAcquire(ctx, "b")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Holder.Value == "" ||
			held.Holder.Value != server.String(t, "GET", "lock:b") || held.ExpiresIn <= 0 {
			t.Fatalf("TryAcquire: %v", err)
		}
		waited := make(chan error, 1)
		go func() {
			lock, err := ours.Acquire(ctx, "b")
			if err == nil {
				err = lock.Release(ctx)
			}
			waited <- err
		}()
		testserver.Eventually(t, "we wait", func() error {
			entry, err := backend.Inspect(ctx, "lock:b")
			return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
		})
		if !theirs.release("lock:b") {
			t.Fatal("they could not release what they hold")
		}
		if err := <-waited; err != nil {
			t.Fatalf("their release does not let our waiter in: %v", err)
		}
	})

	t.Run("they can not delete ours", func(t *testing.T) {
		// Not shorter: within that the server has to answer, however busy the machine is.
		if !theirs.acquire("lock:c", 4*time.Second) {
			t.Fatal("a free lock is refused to them")
		}
		lock, err := ours.Acquire(ctx, "c") // when theirs has run out
		if err != nil {
			t.Fatal(err)
		}
		if theirs.release("lock:c") || theirs.extend("lock:c", minute) {
			t.Error("they say that they released or extended it")
		}
		if err := lock.Extend(ctx); err != nil {
			t.Errorf("our lock was harmed: %v", err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	})

	t.Run("we can not delete theirs", func(t *testing.T) {
		claim := driver.Claim{Key: "lock:d", Owner: driver.NewOwner(driver.OwnerSuffix("short")),
			TTL: 50 * time.Millisecond}
		if r, err := backend.Acquire(ctx, claim); err != nil || r.State != driver.Held {
			t.Fatal(r, err)
		}
		testserver.Eventually(t, "they get it when ours has run out", func() error {
			return testserver.Not(theirs.acquire("lock:d", minute), "refused")
		})
		if r, err := backend.Release(ctx, claim); err != nil || r.State != driver.Lost {
			t.Errorf("Release: %v, %v", r.State, err)
		}
		if results, err := backend.Renew(ctx, []driver.Claim{claim}); err != nil ||
			results[0].State != driver.Lost {
			t.Errorf("Renew: %+v, %v", results, err)
		}
		if !theirs.extend("lock:d", minute) || !theirs.release("lock:d") {
			t.Error("their lock was harmed")
		}
	})

	t.Run("only the fence is left", func(t *testing.T) {
		for _, key := range server.Do(t, "KEYS", "*").([]any) {
			if !strings.HasPrefix(key.(string), "holdfast:f:{") {
				t.Errorf("%v is left", key)
			}
		}
	})
}
