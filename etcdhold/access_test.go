//go:build unix

package etcdhold_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

const password = "a-p@ssword/of-the-test"

// withUsers starts a server that asks for passwords. locker has the rights that locks need, and
// reader may only read.
func withUsers(t *testing.T) etcdtest.Server {
	s, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	s.EndWith(t, func() string { return "the server that asks for passwords" })
	admin := connect(t, func(c *clientv3.Config) { c.Endpoints = []string{s.Endpoint()} })
	ctx, cancel := patience(t)
	defer cancel()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	prefix := etcdhold.DefaultKeyspace
	for name, may := range map[string]clientv3.PermissionType{
		"root":   clientv3.PermissionType(clientv3.PermReadWrite),
		"locker": clientv3.PermissionType(clientv3.PermReadWrite),
		"reader": clientv3.PermissionType(clientv3.PermRead)} {
		must(admin.UserAdd(ctx, name, password))
		must(admin.RoleAdd(ctx, name))
		must(admin.UserGrantRole(ctx, name, name))
		must(admin.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), may))
	}
	must(admin.UserAdd(ctx, "stranger", password))
	must(admin.AuthEnable(ctx))
	return s
}

// address is a URL of the server with that login.
func address(s etcdtest.Server, login *url.Userinfo) string {
	u := url.URL{Scheme: "etcd+unix", User: login, Path: s.Socket}
	return u.String()
}

func opened(t *testing.T, url string) (*etcdhold.Backend, error) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	b, err := etcdhold.Open(ctx, url, patient...)
	if err == nil {
		t.Cleanup(func() { b.Close() })
	}
	return b, err
}

func isRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("%s = %v; want ErrUnavailable that is permanent", what, err)
	}
	if err != nil && (strings.Contains(err.Error(), password) ||
		strings.Contains(err.Error(), url.QueryEscape(password))) {
		t.Errorf("%s = %v, with the password", what, err)
	}
}

// The least rights suffice. Without them the error is permanent.
func TestUsers(t *testing.T) {
	s := withUsers(t)
	b, err := opened(t, address(s, url.UserPassword("locker", password)))
	if err != nil {
		t.Fatal(err)
	}
	a, w := claim("k"), queued("k")
	acquire(t, b, a, driver.Held)
	acquire(t, b, w, driver.Busy)
	renew(t, b, driver.Held, a)
	release(t, b, a, driver.Held)
	renew(t, b, driver.Held, w)
	release(t, b, w, driver.Held)
	if found := findings(t, b); strings.Contains(found, "rights") {
		t.Errorf("Check of who has the rights finds %s", found)
	}

	reader, err := opened(t, address(s, url.UserPassword("reader", password)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = reader.Acquire(t.Context(), claim("k"))
	isRefused(t, "Acquire of who may only read", err)
	// A user who may only read looks at locks. That is no failure of the servers.
	if found := findings(t, reader); !strings.Contains(found, "note rights") {
		t.Errorf("Check of who may only read finds %q", found)
	}
	_, err = opened(t, address(s, url.UserPassword("stranger", password)))
	isRefused(t, "Open of who may not even read", err)

	_, err = opened(t, address(s, url.UserPassword("locker", "wrong")))
	isRefused(t, "Open with a wrong password", err)
	_, err = opened(t, address(s, nil))
	isRefused(t, "Open without a login", err)
	anonymous := open(t, connect(t, func(c *clientv3.Config) {
		c.Endpoints = []string{s.Endpoint()}
	}))
	_, err = anonymous.Acquire(t.Context(), claim("k"))
	isRefused(t, "Acquire without a login", err)

	// The server forgets what it gave at the login, as after a restart. The locks go on.
	acquire(t, b, a, driver.Held)
	admin := connect(t, func(c *clientv3.Config) {
		c.Endpoints, c.Username, c.Password = []string{s.Endpoint()}, "root", password
	})
	ctx, cancel := patience(t)
	defer cancel()
	if _, err := admin.AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	renew(t, b, driver.Held, a)
	release(t, b, a, driver.Held)
}

// A password may be in a file, or where etcdctl looks for it.
func TestPasswords(t *testing.T) {
	s := withUsers(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, address(s, url.User("locker"))+"?password-file="+
		url.QueryEscape(file)); err != nil {
		t.Errorf("Open with a file: %v", err)
	}
	t.Setenv("ETCDCTL_PASSWORD", password)
	if _, err := opened(t, address(s, url.User("locker"))); err != nil {
		t.Errorf("Open with ETCDCTL_PASSWORD: %v", err)
	}
	t.Setenv("ETCDCTL_USER", "locker")
	if _, err := opened(t, address(s, nil)); err != nil {
		t.Errorf("Open with ETCDCTL_USER and ETCDCTL_PASSWORD: %v", err)
	}
	t.Setenv("ETCDCTL_PASSWORD", "")
	t.Setenv("ETCDCTL_USER", "locker:"+password)
	if _, err := opened(t, address(s, nil)); err != nil {
		t.Errorf("Open with ETCDCTL_USER: %v", err)
	}
}

// Open says why there is no server, with a login as without one.
func TestNoServer(t *testing.T) {
	for name, login := range map[string]*url.Userinfo{
		"with a login": url.UserPassword("locker", password), "without": nil,
	} {
		ctx, cancel := patience(t)
		gone := etcdtest.Server{Socket: filepath.Join(t.TempDir(), "gone:0")}
		_, err := etcdhold.Open(ctx, address(gone, login))
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) ||
			!strings.Contains(err.Error(), "no such file") {
			t.Errorf("Open %s = %v; want ErrUnavailable with the reason", name, err)
		}
	}
}

// findings are the codes of what Check finds.
func findings(t *testing.T, b *etcdhold.Backend) string {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	found, err := b.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, f := range found {
		codes = append(codes, map[driver.Severity]string{driver.Failure: "failure",
			driver.Warning: "warning", driver.Note: "note"}[f.Severity], f.Code)
	}
	return strings.Join(codes, " ")
}

// relay serves the shared server at a port.
func relay(t *testing.T) (address string) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { listener.Close(); running.Wait() })
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("unix", server.Socket)
			if err != nil {
				client.Close()
				continue
			}
			all := func([]byte) bool { return true }
			running.Go(func() { testserver.Pass(client, upstream, all) })
			running.Go(func() { testserver.Pass(upstream, client, all) })
		}
	})
	return listener.Addr().String()
}

// firstClaim returns the error of the first claim of a client, which has much time for it.
func firstClaim(t *testing.T, c clientv3.Config) error {
	t.Helper()
	client, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b, err := etcdhold.New(client, etcdhold.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Acquire(t.Context(), claim("k"))
	return err
}

// An untrusted certificate is a permanent error.
func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, err := opened(t, "etcds://"+s.Listener.Addr().String())
	isRefused(t, "Open of a server with an unknown certificate", err)

	// A client of the caller's tells it with the first claim, at once.
	err = firstClaim(t, clientv3.Config{Endpoints: []string{s.URL}, TLS: new(tls.Config),
		Logger: zap.NewNop()})
	isRefused(t, "Acquire from a server with an unknown certificate", err)
}

// The error of a server without TLS says that it may be one.
func TestServerWithoutTLS(t *testing.T) {
	_, err := opened(t, "etcds://"+relay(t))
	if !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "as a server without TLS") {
		t.Errorf("Open by TLS of a server without it = %v; want that", err)
	}
}

// So is the lack of a certificate that the server wants. It says so after the handshake, and then
// closes the connection, so the client may fail to write before it reads that.
func TestNoClientCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		_, err := opened(t, "etcds://"+s.Listener.Addr().String()+"?tls-ca="+ca)
		isRefused(t, "Open without a certificate", err)
		if err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("Open without a certificate = %v; want that one is required", err)
		}
	}
}

// While there is no server, a claim fails at once, and says why.
func TestClaimWithoutAServer(t *testing.T) {
	var requests atomic.Int32
	c := config("http://127.0.0.1:1")
	c.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context,
		method string, ask, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		requests.Add(1)
		return invoke(ctx, method, ask, answer, conn, options...)
	})}
	err := firstClaim(t, c)
	if n := requests.Load(); n != 1 {
		t.Errorf("without a server %d requests were sent; want that the first one ends it", n)
	}
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(),
		"connection refused") {
		t.Errorf("Acquire without a server = %v; want that the connection was refused", err)
	}
}

// Of two hosts, one may be down.
func TestOpenByHost(t *testing.T) {
	host := relay(t)
	b, err := opened(t, "etcd://127.0.0.1:1,"+host+"/team/locks")
	if err != nil {
		t.Fatal(err)
	}
	a := claim("k")
	acquire(t, b, a, driver.Held)
	direct := connect(t)
	ctx, cancel := patience(t)
	defer cancel()
	answer, err := direct.Get(ctx, "team/locks/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || answer.Count != 2 {
		t.Errorf("there are %v keys, %v; want 2 in the keyspace of the path", answer, err)
	}
	release(t, b, a, driver.Held)
	_, err = opened(t, "etcd://127.0.0.1:1")
	if !errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) {
		t.Errorf("Open without a server = %v; want ErrUnavailable that passes", err)
	}
}

// In brackets is an IPv6 address and nothing else. Else a login without its '@' would be looked up
// as a host, and shown in the error about it.
func TestBracketsInURL(t *testing.T) {
	for host, want := range map[string]string{
		"[::1]":                  "http://[::1]:2379",
		"[fe80::A]:1":            "http://[fe80::A]:1",
		"[::ffff:1.2.3.4]:65535": "http://[::ffff:1.2.3.4]:65535",
		// The client of etcd reads it as a URL, in which a '%' is %25.
		"[fe80::1%eth0]:1": "http://[fe80::1%25eth0]:1",
		"[fe80::1%25eth0]": "http://[fe80::1%25eth0]:2379",
	} {
		got, err := etcdhold.Endpoints("etcd://h," + host)
		if err != nil || !slices.Equal(got, []string{"http://h:2379", want}) {
			t.Errorf("%s is read as %q, %v; want %s", host, got, err, want)
		}
	}
	for _, host := range []string{"[", "]", "a[", "[]", "[]:1", "[a", "a]", "[a]", "[a]:1", "[a:1]",
		"[1.2.3.4]", "[::1", "::1]", "[::1]]", "[[::1]", "[[::1]]", "[::1]x", "x[::1]", "[::1]1",
		"[::1]:2]", "[::1]:[2]", "[::1]:[2", "[::1]:2:3", "[::1][::2]", "[::1]:1[::2]", "[::1]]:1",
		"[::1%]", "[::1]%eth0", "[a]b[c]", "a[b]:1", "[::1,::2]", "a:[1]", "a:1]",
		"[user:secret]"} {
		err := etcdhold.Validate("etcd://h," + host)
		if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "URL: host 2 is not well formed: write host:port, or "+
				"[IPv6]:port with nothing but an IPv6 address in brackets") {
			t.Errorf("%s: %v; want ErrInvalid about host 2, which shows no part of it", host, err)
		}
	}
}

// An error about a URL says what is wrong, and shows nothing that may be secret.
func TestURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"http://h":                          "must begin with",
		"etcd://":                           "host 1 is empty",
		"etcd://a,,b":                       "host 2 is empty",
		"etcd://a:1:2":                      "host 1 is not well formed",
		"etcd://[::1":                       "host 1 is not well formed",
		"etcd://a,b]":                       "host 2 is not well formed",
		"etcd://h,u:secret":                 "host 2 has a port that is not 1 to 65535",
		"etcds://h:0":                       "host 1 has a port that is not 1 to 65535",
		"etcd://h:65536":                    "an '@' is missing",
		"etcd://u:secret/x@h":               "has an '@' behind",
		"etcd://u:%secret@h":                "not well formed",
		"etcd://h?secret=1":                 "parameter 1 is unknown",
		"etcd://h#secret":                   "not well formed",
		"etcd://h,g :1":                     "host 2 has a space in it",
		"etcd://:secret@h":                  "a password without a user",
		"etcd://u@h":                        "a user without a password",
		"etcd://u:secret@h?password-file=x": "one of them is too many",
		"etcd://u@h?password-file=/no/file": "password-file",
		"etcd://h?tls-ca=x":                 "need TLS",
		"etcds://h?tls-cert=x":              "go together",
		"etcds://h?tls-ca=/no/file":         "tls-ca",
		"etcd+unix://h/path":                "three slashes",
		"etcd://h?keyspace=a&keyspace=b":    "given twice",
	} {
		err := etcdhold.Validate(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("Validate(%q) = %v; want ErrInvalid with %q", url, err, want)
		}
	}
	for _, url := range []string{"etcd://h", "etcd://u:p%40@h:1,[::1]:2,[::1]/a/b",
		"etcds://h:65535", "etcd+unix:///run/etcd.sock?keyspace=x"} {
		if err := etcdhold.Validate(url); err != nil {
			t.Errorf("Validate(%q) = %v", url, err)
		}
	}
}
