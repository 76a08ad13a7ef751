package redishold_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

const secret = "pass:w@rd/%?#"
const escapedSecret = "pass%3Aw%40rd%2F%25%3F%23"

// refused opens a URL, which must fail. It checks the kind of the error and what it says, and that
// it hides the secret.
func refused(t *testing.T, url string, permanent bool, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b, err := redishold.Open(ctx, url)
	if err == nil {
		b.Close()
		t.Fatalf("Open(%q) succeeded", url)
	}
	if ctx.Err() != nil {
		t.Errorf("Open(%q) took all its time: %v", url, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("Open(%q): %q is more than one line", url, err)
	}
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
		driver.Permanent(err) != permanent {
		t.Errorf("Open(%q): %v; want unavailable, permanent %v", url, err, permanent)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Open(%q): %v; want %q in it", url, err, word)
		}
	}
	for _, s := range []string{secret, escapedSecret} {
		if strings.Contains(err.Error(), s) {
			t.Errorf("Open(%q) tells a secret: %v", url, err)
		}
	}
}

// works has the backend do one round of everything.
func works(t *testing.T, b *redishold.Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !handsOver(ctx, t, b, "lock:works") {
	}
	if _, err := b.Identity(ctx); err != nil {
		t.Fatalf("Identity: %v", err)
	}
	reader, other := newClaim("lock:shared"), newClaim("lock:shared")
	reader.Shared, other.Shared = true, true
	mustBe(t, "share", driver.Held)(b.Acquire(ctx, reader))
	mustBe(t, "share too", driver.Held)(b.Acquire(ctx, other))
	results, err := b.Renew(ctx, []driver.Claim{reader, other})
	if err != nil || results[0].State != driver.Held || results[1].State != driver.Held {
		t.Fatalf("Renew = %+v, %v", results, err)
	}
	mustBe(t, "release", driver.Held)(b.Release(ctx, reader))
	mustBe(t, "release too", driver.Held)(b.Release(ctx, other))
}

// handsOver has a key pass from its holder to a waiter. It reports false if that took longer than a
// waiter that does not ask again counts as present: then it is right that nothing was passed on.
func handsOver(ctx context.Context, t *testing.T, b *redishold.Backend, key string) bool {
	t.Helper()
	notices := make(chan driver.Notice, 10)
	defer b.Notify(func(n driver.Notice) { notices <- n })()
	first, second := newClaim(key), newClaim(key)
	mustBe(t, "acquire", driver.Held)(b.Acquire(ctx, first))
	asked := time.Now()
	late := func() bool { return time.Since(asked) >= protocol.Presence }
	tooLate := func() bool {
		for _, claim := range []driver.Claim{first, second} {
			if _, err := b.Release(ctx, claim); err != nil {
				t.Fatalf("release: %v", err)
			}
		}
		return false
	}
	mustBe(t, "queue", driver.Busy)(b.Acquire(ctx, second))
	if e, err := b.Inspect(ctx, first.Key); err != nil || e.Holder.Owner != first.Owner ||
		len(e.Waiters) != 1 {
		if err == nil && late() {
			return tooLate()
		}
		t.Fatalf("Inspect = %+v, %v", e, err)
	}
	results, err := b.Renew(ctx, []driver.Claim{first, second})
	if err != nil || results[0].State != driver.Held || results[1].State != driver.Lost {
		t.Fatalf("Renew = %+v, %v", results, err)
	}
	mustBe(t, "release", driver.Held)(b.Release(ctx, first))
	if late() {
		return tooLate()
	}
	select { // however long it takes
	case n := <-notices:
		if n.Owner != second.Owner || n.Key != second.Key {
			t.Fatalf("notice %+v", n)
		}
	case <-ctx.Done():
		t.Fatal("no notice of the grant")
	}
	second.Block = 8
	results, err = b.Renew(ctx, []driver.Claim{second})
	if err != nil || results[0].State != driver.Held || results[0].Token == 0 {
		if err == nil && results[0].State == driver.Lost && late() {
			return tooLate()
		}
		t.Fatalf("Renew = %+v, %v", results, err)
	}
	mustBe(t, "release", driver.Held)(b.Release(ctx, second))
	return true
}

func newClaim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")),
		TTL: time.Minute, Queue: true}
}

// mustBe returns a check of a result: mustBe(t, "what", want)(b.Acquire(...)).
func mustBe(t testing.TB, what string, want driver.State) func(driver.Result, error) driver.Result {
	t.Helper()
	return func(r driver.Result, err error) driver.Result {
		t.Helper()
		if err != nil || r.State != want {
			t.Fatalf("%s: %v, %v; want %v", what, r.State, err, want)
		}
		return r
	}
}

func TestOpenForms(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	plain := redistest.Start(t)
	socket := redistest.Start(t, redistest.WithSocket())
	login := redistest.Start(t, redistest.WithPassword(secret))
	secure := redistest.Start(t, redistest.WithTLS(certificates))
	cert := "?tls-ca=" + certificates.CA + "&tls-cert=" + certificates.ClientCert +
		"&tls-key=" + certificates.ClientKey
	for name, url := range map[string]string{
		"plain":         plain.URL(),
		"database":      plain.URL() + "/3",
		"localhost":     "redis://localhost:" + strings.TrimPrefix(plain.Addr, "127.0.0.1:"),
		"socket":        "redis+unix://" + socket.Addr,
		"socket and db": "redis+unix://" + socket.Addr + "?db=2",
		"password":      "redis://:" + escapedSecret + "@" + login.Addr,
		"default user":  "redis://default:" + escapedSecret + "@" + login.Addr,
		"certificates":  "rediss://" + secure.Addr + cert,
	} {
		t.Run(name, func(t *testing.T) { works(t, open(t, url)) })
	}
	t.Run("WithTLS", func(t *testing.T) {
		works(t, open(t, "redis://"+secure.Addr, redishold.WithTLS(certificates.Client)))
	})
	t.Run("database is used", func(t *testing.T) {
		b := open(t, plain.URL()+"/5")
		claim := newClaim("lock:db")
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
		client, err := plain.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.Try("SELECT", "5")
		if value, err := client.Try("GET", "lock:db"); value != claim.Owner {
			t.Errorf("database 5 has %v, %v", value, err)
		}
	})
}

func TestOpenBadInput(t *testing.T) {
	t.Parallel()
	certificates, others := redistest.NewCertificates(t), redistest.NewCertificates(t)
	plain := redistest.Start(t)
	login := redistest.Start(t, redistest.WithPassword(secret))
	secure := redistest.Start(t, redistest.WithTLS(certificates))
	host, port, _ := net.SplitHostPort(plain.Addr)
	replica := redistest.Start(t, redistest.WithArgs("--replicaof", host, port))
	cluster := redistest.StartCluster(t, 1, 1)
	sentinels := redistest.StartSentinels(t)
	nobody := fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))

	t.Run("nobody listens", func(t *testing.T) {
		refused(t, "redis://"+nobody, false, nobody, "connection refused")
		refused(t, "redis+cluster://"+nobody, false, nobody, "connection refused")
		refused(t, "redis+sentinel://"+nobody+"/p", false, nobody, "connection refused")
		refused(t, "redis+unix://"+t.TempDir()+"/nothing", false, "no such file")
	})
	t.Run("unknown host", func(t *testing.T) {
		refused(t, "redis://no-such-host.invalid", false, "no-such-host.invalid")
	})
	t.Run("wrong password", func(t *testing.T) {
		refused(t, "redis://:wrong@"+login.Addr, true, login.Addr, "WRONGPASS")
		refused(t, "redis://nobody:"+escapedSecret+"@"+login.Addr, true, "WRONGPASS")
	})
	t.Run("no password", func(t *testing.T) {
		refused(t, "redis://"+login.Addr, true, "NOAUTH", "wants a password, which is missing")
		refused(t, "redis+sentinel://:"+escapedSecret+"@"+login.Addr+"/p", true, "NOAUTH",
			"wants a password, which is missing in the URL, as sentinel-password")
	})
	t.Run("password where none is", func(t *testing.T) {
		refused(t, "redis://user:"+escapedSecret+"@"+plain.Addr, true, "WRONGPASS")
	})
	t.Run("TLS to a plain port", func(t *testing.T) {
		refused(t, "rediss://"+plain.Addr, true, plain.Addr, "does not speak TLS")
	})
	t.Run("TLS to a plain port with a password", func(t *testing.T) {
		refused(t, "rediss://"+login.Addr, true, login.Addr, "does not speak TLS")
	})
	t.Run("TLS to what says nothing", func(t *testing.T) {
		t.Parallel()
		refused(t, "rediss://"+pretend(t, func(string) string {
			return ""
		}), false, "no answer to the TLS handshake")
	})
	t.Run("what says nothing", func(t *testing.T) {
		t.Parallel()
		refused(t, "redis://"+pretend(t, func(string) string { return "" }), false,
			"accepts connections and does not answer within 5s: it may be stopped or overloaded")
	})
	t.Run("plain to a TLS port", func(t *testing.T) {
		refused(t, "redis://"+secure.Addr, false, secure.Addr, "wants TLS")
	})
	t.Run("unknown authority", func(t *testing.T) {
		refused(t, "rediss://"+secure.Addr+"?tls-ca="+others.CA, true, secure.Addr, "certificate")
	})
	t.Run("no client certificate", func(t *testing.T) {
		// With TLS 1.3 it is the server that ends a handshake which the client thinks is over, by
		// an alert that may or may not get through.
		_, err := redishold.Open(t.Context(), "rediss://"+secure.Addr+"?tls-ca="+certificates.CA)
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%v", err)
		}
	})
	t.Run("replica", func(t *testing.T) {
		refused(t, replica.URL(), true, replica.Addr, "read-only replica of "+plain.Addr)
	})
	t.Run("cluster as a single server", func(t *testing.T) {
		refused(t, cluster.Primaries[0].URL(), true, "redis+cluster://")
		refused(t, cluster.Replicas[0][0].URL(), true, "redis+cluster://")
	})
	t.Run("single server as a cluster", func(t *testing.T) {
		refused(t, "redis+cluster://"+plain.Addr, true, plain.Addr, "redis://")
	})
	t.Run("single server as a Sentinel", func(t *testing.T) {
		refused(t, "redis+sentinel://"+plain.Addr+"/p", true, plain.Addr, "unknown command")
	})
	t.Run("Sentinel as a single server", func(t *testing.T) {
		refused(t, "redis://"+sentinels.Sentinels[0].Addr, true, "redis+sentinel://")
	})
	t.Run("unknown primary", func(t *testing.T) {
		refused(t, "redis+sentinel://"+sentinels.Sentinels[0].Addr+"/nobody", true,
			"knows no primary", "nobody")
	})
	for version, hello := range map[string]string{"6.0.16": "%1\r\n+proto\r\n:3\r\n",
		"5.0.14": "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"} {
		t.Run("version "+version, func(t *testing.T) {
			refused(t, "redis://"+pretend(t, func(command string) string {
				switch command {
				case "HELLO":
					return hello
				case "INFO":
					info := "redis_version:" + version +
						"\r\nrun_id:x\r\nuptime_in_seconds:1\r\nrole:master\r\n"
					return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
				}
				return "+OK\r\n"
			}), true, version, "6.2")
		})
	}
	t.Run("not a Redis", func(t *testing.T) {
		refused(t, "redis://"+pretend(t, func(string) string {
			return "HTTP/1.1 400 Bad Request\r\n\r\n"
		}), false)
	})
	t.Run("disabled command", func(t *testing.T) {
		server := redistest.Start(t, redistest.WithArgs("--rename-command", "EVALSHA", ""))
		refused(t, server.URL(), true, server.Addr, "EVALSHA")
	})
}

// A server that refuses to talk says why before it hangs up.
func TestServerSaysWhy(t *testing.T) {
	t.Parallel()
	t.Run("protected mode", func(t *testing.T) {
		// On loopback no server refuses for that reason.
		const words = "DENIED Redis is running in protected mode because protected mode is enabled"
		refused(t, "redis://"+slams(t, "-"+words+".\r\n"), true, words)
	})
	t.Run("without HELLO", func(t *testing.T) {
		server := redistest.Start(t, redistest.WithArgs("--rename-command", "HELLO", ""))
		refused(t, server.URL(), true, server.Addr, "unknown command", "HELLO")
	})
	t.Run("too many clients", func(t *testing.T) {
		server := redistest.Start(t, redistest.WithArgs("--maxclients", "1"))
		testserver.Eventually(t, "the server has noticed that its first client is gone",
			func() error {
				client, err := server.Dial()
				if err != nil {
					return err
				}
				t.Cleanup(client.Close)
				_, err = client.Try("PING")
				return err
			})
		refused(t, server.URL(), false, server.Addr, "max number of clients reached")
	})
	t.Run("slammed", func(t *testing.T) { refused(t, "redis://"+slams(t, ""), false, "wants TLS") })
	t.Run("alert", func(t *testing.T) {
		refused(t, "redis://"+slams(t, "\x15\x03\x01\x00\x02\x02\x46"), true, "wants TLS")
	})
}

// A server that listens but never answers costs the caller only the time that the caller waits.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent := pretend(t, func(string) string { return "" })
	for _, url := range []string{"redis://" + silent, "rediss://" + silent, "redis+cluster://" +
		silent, "redis+sentinel://" + silent + "/p"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := redishold.Open(ctx, url); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpenWithoutConnecting(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	b := open(t, server.URL(), redishold.WithoutConnecting())
	if _, err := b.Acquire(t.Context(), newClaim("k")); !errors.Is(err, driver.ErrUnavailable) ||
		driver.Permanent(err) {
		t.Errorf("Acquire from a server that is not there: %v", err)
	}
	server.Run(t)
	works(t, b)
}

// slams is a server that says something to each client and then hangs up without listening. It
// returns its address.
func slams(t *testing.T, words string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, words)
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// pretend is a server that answers each command with what reply makes of its name. It returns its
// address.
func pretend(t *testing.T, reply func(command string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				r := bufio.NewReader(conn)
				for {
					name, err := readCommand(r)
					if err != nil {
						return
					}
					io.WriteString(conn, reply(name))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// readCommand reads a command and returns its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	var args, length int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &args); err != nil {
		return "", err
	}
	for i := range args {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &length); err != nil {
			return "", err
		}
		data := make([]byte, length+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return "", err
		}
		if i == 0 {
			name = string(data[:length])
		}
	}
	return name, nil
}

// access is the least that the package's documentation says an ACL user needs.
func access(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, ok := strings.Cut(string(source), "//\tACL SETUSER locks ")
	if !ok {
		t.Fatal("doc.go has no ACL SETUSER")
	}
	rules, _, _ = strings.Cut(rules, "\n//\n")
	return strings.Fields(strings.ReplaceAll(rules, "//", ""))
}

// Redis 6.2 lets a new user see all channels, and then refuses to add some to these.
func TestACLDocumentedMinimumOfOldServers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--acl-pubsub-default", "allchannels"))
	server.Do(t, append([]string{"ACL", "SETUSER", "locks"}, access(t)...)...)
	works(t, open(t, "redis://locks:secret@"+server.Addr))
}

func TestACLDocumentedMinimum(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := access(t)
	url := "redis://locks:secret@" + server.Addr
	setUser := func(t *testing.T, rules ...string) {
		server.Do(t, append([]string{"ACL", "SETUSER", "locks", "reset"}, rules...)...)
	}
	setUser(t, rules...)
	works(t, open(t, url))

	for i, rule := range rules {
		name, ok := strings.CutPrefix(rule, "+")
		switch name {
		case "ping", "script|load", "subscribe":
			continue // they make things better and are not needed at once
		}
		if !ok {
			continue
		}
		without := append(append([]string(nil), rules[:i]...), rules[i+1:]...)
		setUser(t, without...)
		refused(t, url, true, "NOPERM", "'"+name+"'")
	}

	t.Run("keys", func(t *testing.T) {
		setUser(t, rules...)
		b := open(t, url)
		_, err := b.Acquire(t.Context(), newClaim("elsewhere:k"))
		if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Acquire of a key that is not allowed: %v", err)
		}
	})
	t.Run("to list", func(t *testing.T) {
		list := func(more ...string) (err error) {
			setUser(t, append(rules, more...)...)
			for _, err = range open(t, url).List(t.Context(), "lock:") {
				if err != nil {
					return err
				}
			}
			return nil
		}
		mustBe(t, "acquire", driver.Held)(open(t, server.URL()).Acquire(t.Context(),
			newClaim("lock:listed")))
		if err := list("+scan"); err != nil {
			t.Errorf("List with what the documentation says: %v", err)
		}
		if err := list(); !driver.Permanent(err) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("List without: %v", err)
		}
	})
	t.Run("without channels", func(t *testing.T) {
		setUser(t, append(rules, "resetchannels")...)
		refused(t, url, true, "NOPERM", "channel")
	})
	t.Run("taken away", func(t *testing.T) {
		setUser(t, rules...)
		b := open(t, url)
		works(t, b)
		server.Do(t, "ACL", "SETUSER", "locks", "-zadd")
		_, err := b.Acquire(t.Context(), newClaim("lock:k"))
		if !driver.Permanent(err) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Acquire without ZADD: %v", err)
		}
	})
}

// A connection costs its client less than half a megabyte, buffers included: five servers and a few
// hundred clients are an ordinary process's share.
func TestMemoryOfAConnection(t *testing.T) {
	server := redistest.Start(t)
	open(t, server.URL())
	heap := func() int64 {
		var m runtime.MemStats
		for range 2 { // what is in a pool, or is finalized first, goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const conns = 20
	before := heap()
	var all []*redishold.Backend
	for range conns {
		all = append(all, open(t, server.URL()))
	}
	if each := (heap() - before) / conns; each > 512<<10 {
		t.Errorf("%d KiB for a connection", each>>10)
	}
	runtime.KeepAlive(all)
}
