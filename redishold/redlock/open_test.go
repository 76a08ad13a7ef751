package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

func TestURL(t *testing.T) {
	for url, want := range map[string][]string{
		"redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3": {"127.0.0.1:1", "127.0.0.1:2",
			"127.0.0.1:3"},
		"redlock://u:p%2F%40@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/2": {"127.0.0.1:1", "127.0.0.1:2",
			"127.0.0.1:3"},
		"redlock://localhost,127.0.0.1:1,[::1],[::1]:1?db=1": {"localhost:6379",
			"127.0.0.1:1", "[::1]:6379", "[::1]:1"},
		"redlocks://127.0.0.1:1,127.0.0.1:2,LOCALHOST:3": {"127.0.0.1:1", "127.0.0.1:2",
			"localhost:3"},
		"redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?restart-guard=1h&node-timeout=20ms": {
			"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	} {
		q, err := redlock.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := redlock.Validate(url); err != nil {
			t.Errorf("%s: Validate says %v", url, err)
		}
		var got []string
		for _, n := range q.Status().Nodes {
			got = append(got, n.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: nodes %q; want %q", url, got, want)
		}
		q.Close()
	}
}

func TestURLBadInput(t *testing.T) {
	for url, words := range map[string]string{
		"":                            "must begin with redlock://",
		"a,b,c":                       "must begin with redlock://",
		"redis://a,b,c":               "must begin with redlock://",
		"redlock://":                  "the host has no name",
		"redlock://a,b,":              "host 3 of 3 has no name",
		"redlock://a,:6379,c":         "host 2 of 3 has no name",
		"redlock://a":                 "1 hosts: at least 3 are needed, with fewer none may fail; for a single server use redis://",
		"redlocks://a,b":              "2 hosts: at least 3 are needed, with fewer none may fail; for a single server use rediss://",
		"redlock://u:p@a,u:p@b,u:p@c": "write user and password once, in front of the first host",
		"redlock://u:p@a,u:p@b,c,d,e": "write user and password once, in front of the first host",
		"redlock://a,b,a":             "hosts 1 and 3 are the same: it would have two votes",
		"redlock://a:6379,b,A":        "hosts 1 and 3 are the same: it would have two votes",
		"redlock://a,b,c:x":           "host 3 of 3 has a port that is not 1 to 65535",
		"redlock://a,b,c:1:2":         "host 3 of 3 must be host",
		"redlock://a, b, c":           "host 2 of 3 has a space",
		"redlock://a,b,c/x":           "the database must be a number",
		"redlock://a,b,c?db=x":        "the database must be a number",
		"redlock://a,b,c#x":           "fragment",
		"redlock://a,b,c?%zz":         "not well formed",
		"redlock://:%zz@a,b,c":        "not well formed",
		"redlock://a,b,c?guard=1m":    `parameter 1 is unknown: known are restart-guard, node-timeout, durable, db, set`,
		"redlocks://a,b,c?wait=1":     `parameter 1 is unknown: known are restart-guard, node-timeout, durable, db, set, tls-ca, tls-cert, tls-key`,
		"redlock://a,b,c?tls-ca=/x":   `"tls-ca" needs TLS: begin the URL with redlocks://`,
		"redlock://a,b,c?restart-guard=1m&restart-guard=2m": `"restart-guard" is given twice`,
		"redlock://a,b,c?set=":                              `set "": must be 1 to 64 letters`,
		"redlock://a,b,c?set=a%2Fb":                         `set "a/b": must be 1 to 64 letters`,
		"redlock://a,b,c?set=%C3%A4":                        `set "ä": must be 1 to 64 letters`,
		"redlock://a,b,c?restart-guard=60":                  `restart-guard "60": must be a duration`,
		"redlock://a,b,c?restart-guard=-1s":                 `restart-guard "-1s": must be a duration`,
		"redlock://a,b,c?restart-guard=":                    `restart-guard "": must be a duration`,
		"redlock://a,b,c?node-timeout=0s":                   `node-timeout "0s": must be a duration of at least 1ms`,
		"redlock://a,b,c?node-timeout=soon":                 `node-timeout "soon"`,
		"redlock://a,b,c?node-timeout=2m":                   "node timeout 2m0s is longer than the guard 1m0s",
		"redlocks://a,b,c?tls-ca=/no/such/file":             "/no/such/file",
		"redlock://a,b,c,d,e,f,g,h,i,j":                     "at most 9",
	} {
		q, err := redlock.Open(t.Context(), url)
		if !errors.Is(err, driver.ErrInvalid) || q != nil ||
			!strings.Contains(err.Error(), words) || !strings.HasPrefix(err.Error(), "redlock: ") {
			t.Errorf("%s: %v; want ErrInvalid with %q in it", url, err, words)
		}
		if invalid := redlock.Validate(url); err == nil || !errors.Is(invalid, driver.ErrInvalid) ||
			invalid.Error() != err.Error() {
			t.Errorf("%s: Validate says %v; want %v", url, invalid, err)
		}
		if err != nil && strings.Contains(err.Error(), "redishold") {
			t.Errorf("%s: %v; want one package's name", url, err)
		}
	}
}

// Of three lists of options, the error says which one has the nil.
func TestNilOptions(t *testing.T) {
	for want, option := range map[string]redlock.Option{
		"redlock: invalid: option 1 is nil: leave it out": nil,
		"redlock: invalid: WithNodes: option 2 is nil: leave it out": redlock.WithNodes(
			redishold.WithTLS(nil), nil),
		"redlock: invalid: WithQuorum: option 1 is nil: leave it out": redlock.WithQuorum(nil),
	} {
		if _, err := redlock.Open(t.Context(), "redlock://a,b,c", option); !errors.Is(err,
			driver.ErrInvalid) || err.Error() != want {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// hidden are URLs with a password in each place where one gets to.
var hidden = []string{
	"redlock://u:hidden@a,b", "redlock://:hidden@a,b,a", "redlock://:hidden@a,b,c:x",
	"redlock://:hidden%zz@a,b,c", "redlock://:hid@den@a,b,c:y",
	"redlock://:hid/den@a,b,c", "redlock://u:hid?den@a,b,c", "redlock://u:hid#den@a,b,c",
	"redlock://u:p@hid/den@a,b,c", "redlock://u:p?x=hid@a,b,c",
	"redlock://u:1/hid@a,b,c", "redlock://u:1,u:1/hid@a,b,c", "redlock://hid:1,hid:1,hid:1/0?@",
	"redlock://:hid,hid,hid?db=1@a,b,c",
	"redlock://:hidden@a,b,c?what=x", "redlocks://:hidden@a,b,c?tls-ca=/no",
	"redlock://:hidden@a,b,c?node-timeout=x", "x://:hidden@a,b,c",
}

func TestURLTellsNoSecret(t *testing.T) {
	for _, url := range hidden {
		if _, err := redlock.Open(t.Context(), url); err == nil ||
			strings.Contains(err.Error(), "hid") {
			t.Errorf("%s: %v; want an error without the secret", url, err)
		}
	}
}

// FuzzSecrets puts a secret where users put one, well formed or with a character that should have
// been escaped, or with a mistake for the @, and checks that no error and no name of a node holds
// it.
func FuzzSecrets(f *testing.F) {
	const marker = "S3cReT"
	tells := func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(marker))
	}
	for _, separator := range []string{"@", ":", "/", "?", "#", ",", ";", " ", "%40", "@x@", "&",
		"]"} {
		f.Add("redlock", "u", "", "", separator, "h:1,g,[::1]", "/2", "db", "3")
		f.Add("redlocks", "", "p"+separator, separator, "@", "h:1,g,g", "", "node-timeout", "1s")
	}
	f.Fuzz(func(t *testing.T, scheme, user, before, after, separator, hosts, path, param,
		value string) {
		for _, public := range []string{scheme, user, hosts, path, param, value} {
			if tells(public) || strings.Contains(public, "tls-") {
				return // not secret there, or names files that would be read
			}
		}
		if strings.Contains(before+after, "tls-") || strings.ContainsAny(user, "/?#") {
			return
		}
		secret := before + marker + after
		urls := []string{
			scheme + "://" + user + ":" + secret + "@" + hosts + path + "?" + param + "=" + value,
			scheme + "://" + secret + "@" + hosts + path,
			scheme + "://" + hosts + path + "?" + param + "=" + value + "&" + secret,
		}
		if strings.Contains(secret, "=") {
			urls = urls[:2]
		}
		if !strings.ContainsAny(secret+separator, "/?#,@") {
			urls = append(urls, scheme+"://"+user+":"+secret+separator+hosts+path)
		}
		for _, raw := range urls {
			if err := redlock.Validate(raw); err != nil && tells(err.Error()) {
				t.Errorf("%q: %v", raw, err)
			} else if err == nil && tells(strings.Join(redlock.NamesOf(raw), " ")) {
				t.Errorf("%q has nodes that are called %q", raw, redlock.NamesOf(raw))
			}
		}
	})
}

// R3, R10: Open succeeds without a minority, and a missing majority shows in the first call.
func TestOpenWithNodesDown(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.servers[0].Kill()
	c.servers[3].Kill()
	k := c.client(t, calm)
	claim := newClaim("k", longTTL)
	k.hold(claim)
	k.release(claim, driver.Held)

	c.servers[4].Kill()
	k = c.client(t, calm)
	_, err := k.ask(claim)
	if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUnknown) ||
		driver.Permanent(err) {
		t.Errorf("Acquire from a minority: %v", err)
	}
	var all *quorum.Error
	if !errors.As(err, &all) || all.Need != 3 || all.Got != 2 || len(all.Nodes) != 5 {
		t.Fatalf("Acquire from a minority: %#v", err)
	}
	text := all.Error()
	if strings.Contains(text, "\n") || !strings.HasPrefix(text, "2 of 5 nodes agreed, 3 needed: ") {
		t.Errorf("error %q; want one line that begins with the whole", text)
	}
	for i, s := range c.servers {
		if all.Nodes[i].Node != s.Addr || !strings.Contains(text, s.Addr+": ") {
			t.Errorf("node %d is told as %q in %q; want %q", i, all.Nodes[i].Node, text, s.Addr)
		}
	}
	c.servers[0].Run(t)
	c.servers[3].Run(t)
	c.servers[4].Run(t)
	k.granted(claim)
	k.release(claim, driver.Held)
	c.nothingLeft(t)
}

func TestSameServerTwice(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	proxy := redistest.NewProxy(t, c.servers[1]) // another address of the same server
	hosts := []string{c.servers[0].Addr, c.servers[1].Addr, c.servers[2].Addr, c.servers[3].Addr,
		proxy.Addr}
	q, err := redlock.Open(t.Context(), "redlock://"+strings.Join(hosts, ",")+"?"+calm)
	if err == nil {
		// The machine is so busy that not all have said in time who they are. Then it is found out
		// when they are asked.
		k := &client{Quorum: q, t: t}
		defer k.Close()
		testserver.Eventually(t, "the second vote is taken away", func() error {
			claim := newClaim("k", longTTL)
			if r, err := k.ask(claim); err == nil && r.State == driver.Held {
				k.release(claim, driver.Held)
			}
			n := k.Status().Nodes[4]
			return testserver.Not(n.State == quorum.Duplicate, "%+v", n)
		})
		return
	}
	if !errors.Is(err, quorum.ErrSameServer) || q != nil {
		t.Fatalf("Open: %v, want %v", err, quorum.ErrSameServer)
	}
	for _, name := range []string{c.servers[1].Addr, proxy.Addr} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	testserver.Eventually(t, "the connections are closed", func() error {
		return testserver.Not(proxy.Conns() == 0, "%d are open", proxy.Conns())
	})
}

// An end of the context ends Open, and nothing is left open.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var hosts []string
	var proxies []*redistest.Proxy
	for _, s := range c.servers {
		p := redistest.NewProxy(t, s)
		p.SetReplies(redistest.Hold)
		proxies, hosts = append(proxies, p), append(hosts, p.Addr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		testserver.Eventually(t, "a connection is made", func() error {
			return testserver.Not(proxies[0].Made() > 0, "none yet")
		})
		cancel()
	}()
	q, err := redlock.Open(ctx, "redlock://"+strings.Join(hosts, ","))
	if q != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Open = %v, %v", q, err)
	}
	for _, p := range proxies {
		// while it keeps one back a proxy does not see that the client is gone
		p.SetReplies(redistest.Pass)
		testserver.Eventually(t, "the connections are closed", func() error {
			return testserver.Not(p.Conns() == 0, "%d are open", p.Conns())
		})
	}
}

// The parameters get to where they are meant for.
func TestParameters(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	secret := redistest.WithPassword("s/cret@")
	var hosts []string
	c := new(cluster)
	for range 3 {
		s := redistest.Start(t, secret, redistest.WithTLS(certificates))
		c.servers, hosts = append(c.servers, s), append(hosts, s.Addr)
	}
	at := "redlocks://:s%2Fcret%40@" + strings.Join(hosts, ",")
	files := "&tls-ca=" + certificates.CA + "&tls-cert=" + certificates.ClientCert +
		"&tls-key=" + certificates.ClientKey
	k := &client{Quorum: open(t, at+"/3?restart-guard=0s&node-timeout=3s"+files), t: t}
	claim := newClaim("k", longTTL)
	k.hold(claim)
	for i, s := range c.servers {
		conn, err := s.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Try("SELECT", "3")
		testserver.Eventually(t, fmt.Sprintf("the lock is in database 3 of server %d", i),
			func() error {
				got, err := conn.Try("GET", "k")
				return errors.Join(err, testserver.Not(got == claim.Owner, "%v", got))
			})
	}
	k.release(claim, driver.Held)

	// Without the files, the option has the certificates.
	k = &client{t: t, Quorum: open(t, at+"?restart-guard=0s&node-timeout=3s",
		redlock.WithNodes(redishold.WithTLS(certificates.Client)))}
	k.hold(claim)
	k.release(claim, driver.Held)

	// Every node reports a wrong password, and that is permanent.
	k = &client{t: t,
		Quorum: open(t, strings.Replace(at, "cret", "cr3t", 1)+"?restart-guard=0s&node-timeout=3s"+
			files)}
	if _, err := k.ask(claim); !driver.Permanent(err) || strings.Contains(err.Error(), "cr3t") ||
		strings.Count(err.Error(), "WRONGPASS") != 3 {
		t.Errorf("with a wrong password: %v", err)
	}
}

// A node that does not answer gets node-timeout.
func TestNodeTimeout(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, "restart-guard=0s&node-timeout=77ms")
	for _, s := range c.servers {
		s.Freeze()
	}
	if _, err := k.ask(newClaim("k", longTTL)); err == nil ||
		!strings.Contains(err.Error(), "within 77ms") {
		t.Errorf("Acquire: %v", err)
	}
}

// An option of Open prevails over the URL.
func TestOptionsPrevail(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, "restart-guard=1s&node-timeout=100ms",
		redlock.WithQuorum(quorum.WithGuard(0), quorum.WithNodeTimeout(3*time.Second)))
	claim := newClaim("k", longTTL)
	k.hold(claim)
	k.release(claim, driver.Held)
}

// A server among them that is of no use, a replica or one with another password, is a node that
// fails, and it is told apart from one that is away by its Status. When it is mended it takes part.
func TestUselessNode(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	primary := redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	c.servers[1].Do(t, "REPLICAOF", host, port)
	c.servers[3].Do(t, "CONFIG", "SET", "requirepass", "secret")
	k := c.client(t, calm)
	claim := newClaim("k", longTTL)
	k.hold(claim)
	want := map[int]string{1: "read-only replica", 3: "NOAUTH"}
	testserver.Eventually(t, "the useless ones are told", func() error {
		var err error
		for i, n := range k.Status().Nodes {
			if words := want[i]; words != "" {
				err = errors.Join(err,
					testserver.Not(n.Err != nil && strings.Contains(n.Err.Error(), words),
						"node %d: %+v", i, n))
			}
		}
		return err
	})
	c.servers[1].Do(t, "REPLICAOF", "NO", "ONE")
	client, err := c.servers[3].Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, command := range [][]string{{"AUTH", "secret"}, {"CONFIG", "SET", "requirepass", ""}} {
		if _, err := client.Try(command...); err != nil {
			t.Fatal(err)
		}
	}
	k.healthy()
	testserver.Eventually(t, "they have the lock", func() error {
		k.renew(claim, driver.Held)
		n := c.heldOn(t, claim)
		return testserver.Not(n == 5, "%d have", n)
	})
	k.release(claim, driver.Held)
	c.nothingLeft(t)
}
