package protocol_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// fake is a transport and its only connection, which answers as told.
type fake struct {
	server  *protocol.Server
	answer  func(command protocol.Command) protocol.Reply
	hear    func(*protocol.Server, string)
	sent    []protocol.Command
	batches int
	cluster bool

	unordered bool
}

func (f *fake) Conn(context.Context, uint16) (protocol.Conn, error)           { return f, nil }
func (f *fake) Follow(context.Context, uint16, string) (protocol.Conn, error) { return f, nil }
func (f *fake) All(context.Context) ([]protocol.Conn, error) {
	return []protocol.Conn{f}, nil
}
func (f *fake) Shard(uint16) string { return "" }
func (f *fake) Cluster() bool       { return f.cluster }
func (f *fake) Ordered() bool {
	return !f.unordered
}
func (f *fake) Listen(hear func(*protocol.Server, string)) { f.hear = hear }
func (f *fake) Close() error                               { return nil }
func (f *fake) Route(context.Context, uint16) string       { return "" }
func (f *fake) Server() *protocol.Server                   { return f.server }

func (f *fake) Do(_ context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	f.batches++
	for i, command := range commands {
		f.sent = append(f.sent, append(protocol.Command(nil), command...))
		replies[i] = f.answer(command)
	}
	return nil
}

func failing(text string) func(protocol.Command) protocol.Reply {
	return func(protocol.Command) protocol.Reply {
		return protocol.Reply{Kind: protocol.Failure, Str: text}
	}
}

// remembering answers for a server that belongs to no set and has had its data for so long, and
// else as answer does.
func remembering(age time.Duration,
	answer func(protocol.Command) protocol.Reply) func(protocol.Command) protocol.Reply {
	return func(c protocol.Command) protocol.Reply {
		if c[0] == "EVALSHA" && scriptName(c[1]) == "belong" {
			return protocol.Reply{Kind: protocol.List,
				List: []protocol.Reply{{Kind: protocol.String},
					{Kind: protocol.Integer, Int: age.Milliseconds()},
					{Kind: protocol.String, Str: "memory"}}}
		}
		if c[0] == "GET" && c[1] == "holdfast:m:{holdfast:s}" {
			return protocol.Reply{Kind: protocol.String, Str: "memory"}
		}
		return answer(c)
	}
}

func claim() driver.Claim {
	return driver.Claim{Key: "k", Owner: "o", TTL: time.Second, Token: 100, Block: 4}
}

func TestUncontendedIsOneRoundTrip(t *testing.T) {
	f := &fake{answer: func(c protocol.Command) protocol.Reply {
		switch c[0] {
		case "SET":
			return protocol.Reply{Kind: protocol.String, Str: "OK"}
		case "EXISTS":
			return protocol.Reply{Kind: protocol.Integer}
		case "ZADD":
			return protocol.Reply{Kind: protocol.Integer, Int: 2}
		case "GETRANGE":
			return protocol.Reply{Kind: protocol.String, Str: "o"}
		case "EVALSHA":
			return protocol.Reply{Kind: protocol.Integer, Int: 1}
		}
		return protocol.Reply{}
	}}
	b := protocol.New(f, protocol.Options{})
	r, err := b.Acquire(t.Context(), claim())
	if err != nil || r.State != driver.Held || r.Token != 100 || f.batches != 1 ||
		len(f.sent) != 4 {
		t.Fatalf("Acquire = %+v, %v, in %d round trips: %q", r, err, f.batches, f.sent)
	}
	r, err = b.Release(t.Context(), claim())
	if err != nil || r.State != driver.Held || f.batches != 2 || len(f.sent) != 5 {
		t.Fatalf("Release = %+v, %v, in %d round trips: %q", r, err, f.batches, f.sent)
	}
}

// The server's lease must not end before the one that the client reckons with.
func TestLeasesAreRoundedUp(t *testing.T) {
	for ttl, want := range map[time.Duration]string{time.Millisecond: "1",
		1500 * time.Microsecond: "2", time.Second + 1: "1001", time.Minute: "60000"} {
		f := &fake{answer: failing("no matter")}
		b := protocol.New(f, protocol.Options{})
		c := claim()
		c.TTL, c.Block = ttl, 0
		b.Acquire(t.Context(), c)
		b.Renew(t.Context(), []driver.Claim{c})
		if got := f.sent[0][5]; got != want {
			t.Errorf("a TTL of %v is sent as %s ms", ttl, got)
		}
		if renewal := f.sent[len(f.sent)-1]; renewal[len(renewal)-1] != want {
			t.Errorf("a TTL of %v is renewed by %q", ttl, renewal)
		}
	}
}

func TestMissingScriptIsSentOnce(t *testing.T) {
	f := &fake{answer: failing("NOSCRIPT No matching script.")}
	b := protocol.New(f, protocol.Options{})
	_, err := b.Release(t.Context(), claim())
	if !errors.Is(err, driver.ErrUnavailable) || !protocol.IsServerError(err, "NOSCRIPT") {
		t.Errorf("Release without scripts: %v", err)
	}
	if len(f.sent) != 2 || f.sent[0][0] != "EVALSHA" || f.sent[1][0] != "EVAL" {
		t.Errorf("sent %q", f.sent)
	}
}

func TestEndlessRedirectsEnd(t *testing.T) {
	for _, text := range []string{"MOVED 1 a:1", "ASK 1 a:1"} {
		f := &fake{answer: failing(text), cluster: true}
		b := protocol.New(f, protocol.Options{})
		if _, err := b.Release(t.Context(), claim()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", text, err)
		}
		if len(f.sent) > 10 {
			t.Errorf("%s: sent %d commands", text, len(f.sent))
		}
	}
}

func TestStrangeRepliesAreUnknown(t *testing.T) {
	for _, reply := range []protocol.Reply{
		{}, {Kind: protocol.Integer, Int: -7}, {Kind: protocol.Integer, Int: 99},
		{Kind: protocol.String, Str: "what"}, {Kind: protocol.List},
		{Kind: protocol.List, List: make([]protocol.Reply, 3)},
		{Kind: protocol.List, List: []protocol.Reply{{Kind: protocol.String}}},
	} {
		f := &fake{answer: func(c protocol.Command) protocol.Reply {
			if c[0] == "SET" {
				return protocol.Reply{} // go on to the script
			}
			return reply
		}}
		b := protocol.New(f, protocol.Options{})
		if r, err := b.Acquire(t.Context(), claim()); !errors.Is(err, driver.ErrUnknown) &&
			!(reply.Int == 99 && r.Token == 99) {
			t.Errorf("Acquire answered with %+v: %+v, %v", reply, r, err)
		}
		if _, err := b.Release(t.Context(), claim()); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("Release answered with %+v: %v", reply, err)
		}
		results, err := b.Renew(t.Context(), []driver.Claim{claim()})
		if r := results[0]; err != nil || r.State == driver.Held && reply.Int != 99 &&
			(reply.Int != -7 || r.Token != 7 || !r.Waiting) {
			t.Errorf("Renew answered with %+v: %+v, %v", reply, results, err)
		}
		if _, err := b.Inspect(t.Context(), "k"); err == nil && len(reply.List) != 2 {
			t.Errorf("Inspect answered with %+v: no error", reply)
		}
	}
}

// Another server takes over from one that is read-only now, or it will be the primary again.
func TestReadOnlyPasses(t *testing.T) {
	f := &fake{answer: failing("READONLY You can't write"), server: &protocol.Server{Name: "a:1"}}
	_, err := protocol.New(f, protocol.Options{}).Acquire(t.Context(), claim())
	if driver.Permanent(err) || !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "a:1") {
		t.Errorf("Acquire: %v", err)
	}
}

func TestClaimsThatAreNotAllowed(t *testing.T) {
	f := &fake{answer: failing("must not be asked")}
	b := protocol.New(f, protocol.Options{})
	for name, spoil := range map[string]func(*driver.Claim){
		"no key":       func(c *driver.Claim) { c.Key = "" },
		"long key":     func(c *driver.Claim) { c.Key = strings.Repeat("k", driver.MaxKeyLen+1) },
		"queue's key":  func(c *driver.Claim) { c.Key = protocol.KeysOf("x").Queue },
		"waiters' key": func(c *driver.Claim) { c.Key = protocol.KeysOf("x").Waiters },
		"readers' key": func(c *driver.Claim) { c.Key = protocol.KeysOf("x").Readers },
		"shared value": func(c *driver.Claim) { c.Owner = "holdfast:shared" },
		"fence's key":  func(c *driver.Claim) { c.Key = protocol.KeysOf("x").Fence },
		"end's key":    func(c *driver.Claim) { c.Key = "holdfast:d:{0}:owner" },
		"set's key":    func(c *driver.Claim) { c.Key = "holdfast:s" },
		"memory's key": func(c *driver.Claim) { c.Key = "holdfast:m:{holdfast:s}" },
		"probe's key":  func(c *driver.Claim) { c.Key = protocol.Needs(false)[0][3] },
		"no owner":     func(c *driver.Claim) { c.Owner = "" },
		"short TTL":    func(c *driver.Claim) { c.TTL = time.Millisecond - 1 },
		"large token":  func(c *driver.Claim) { c.Token = 1 << 53 },
		"large block":  func(c *driver.Claim) { c.Block = 1 << 60 },
		"both large":   func(c *driver.Claim) { c.Token, c.Block = 1<<53-10, 11 },
		"large ticket": func(c *driver.Claim) { c.Ticket = 1 << 53 },
	} {
		c := claim()
		spoil(&c)
		if _, err := b.Acquire(t.Context(), c); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: Acquire: %v", name, err)
		}
		results, err := b.Renew(t.Context(), []driver.Claim{c})
		if err != nil || !driver.Permanent(results[0].Err) {
			t.Errorf("%s: Renew: %+v, %v", name, results, err)
		}
	}
	for _, names := range []struct {
		spoil func(*driver.Claim)
		want  string
	}{
		{func(c *driver.Claim) { c.Key = "holdfast:s" },
			`key "holdfast:s" is reserved: use one that does not begin with "holdfast:"`},
		{func(c *driver.Claim) { c.Owner = "holdfast:shared" },
			`owner value "holdfast:shared" is reserved: NewOwner makes others`},
	} {
		c := claim()
		names.spoil(&c)
		if _, err := b.Acquire(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), names.want) {
			t.Errorf("Acquire: %v; want %q in it", err, names.want)
		}
	}
	if len(f.sent) > 0 {
		t.Errorf("sent %q", f.sent)
	}
}

func FuzzNotice(f *testing.F) {
	fake := &fake{}
	b := protocol.New(fake, protocol.Options{})
	f.Add("104 4 1 Ok")
	f.Add("104 4 20 an owner/with spaceslock:a")
	f.Add("1 1 99999999999999999999 x")
	f.Add("0 1 1 xk")
	f.Add("1 1 2 xk")
	f.Add("9007199254740991 2 1 xk")
	f.Fuzz(func(t *testing.T, message string) {
		stop := b.Notify(func(n driver.Notice) {
			if n.Kind != driver.Granted || n.Key == "" || n.Owner == "" || n.Token == 0 ||
				!strings.HasSuffix(message, n.Owner+n.Key) {
				t.Errorf("message %q: notice %+v", message, n)
			}
		})
		defer stop()
		fake.hear(nil, message)
	})
}

func TestNotice(t *testing.T) {
	fake := &fake{}
	b := protocol.New(fake, protocol.Options{})
	var got []driver.Notice
	stop := b.Notify(func(n driver.Notice) { got = append(got, n) })
	fake.hear(nil, "104 4 20 an owner/with spaceslock:a")
	stop()
	stop()
	fake.hear(nil, "104 4 1 ok")
	want := driver.Notice{Kind: driver.Granted, Key: "lock:a", Owner: "an owner/with spaces",
		Token: 104, Block: 4}
	if len(got) != 1 || got[0] != want {
		t.Errorf("notices %+v, want %+v", got, want)
	}
}

// With a guard a notice counts only if its server would be allowed to grant; if that is not known,
// the waiter is told to ask.
func TestR32_NoticesAreGuarded(t *testing.T) {
	fake := &fake{answer: remembering(time.Hour, failing("no matter"))}
	b := protocol.New(fake, protocol.Options{})
	var got []driver.Notice
	defer b.Notify(func(n driver.Notice) { got = append(got, n) })()
	const message = "104 4 1 ok"
	young := &protocol.Server{Booted: time.Now()}
	old := &protocol.Server{Booted: time.Now().Add(-time.Hour)}
	forgetful := &protocol.Server{Booted: time.Now().Add(-time.Hour)}
	granted := driver.Notice{Kind: driver.Granted, Key: "k", Owner: "o", Token: 104, Block: 4}
	freed := driver.Notice{Kind: driver.Freed, Key: "k", Owner: "o"}
	for _, c := range []struct {
		guard  time.Duration
		server *protocol.Server
		want   []driver.Notice
	}{
		{0, young, []driver.Notice{granted}},
		{0, nil, []driver.Notice{granted}},
		{time.Minute, young, nil},
		{time.Minute, old, []driver.Notice{granted}},
		{2 * time.Hour, old, nil},
		{time.Minute, forgetful, []driver.Notice{freed}},
		{time.Minute, nil, []driver.Notice{freed}},
	} {
		b.Guard(c.guard)
		fake.server, fake.answer = c.server, remembering(time.Hour, failing("no matter"))
		if c.server == forgetful {
			fake.answer = remembering(0, failing("no matter"))
		}
		b.Acquire(t.Context(), claim())
		got = nil
		fake.hear(c.server, message)
		if !slices.Equal(got, c.want) {
			t.Errorf("guard %v, server %+v: heard %+v, want %+v", c.guard, c.server, got, c.want)
		}
	}
}

func TestParseInfo(t *testing.T) {
	const info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:90\r\n# Replication\r\nrole:slave\r\nmaster_host:h\r\nmaster_port:1\r\n# Cluster\r\ncluster_enabled:0\r\n"
	now := time.Now()
	s, err := protocol.ParseInfo("a:1", info, now)
	if err != nil {
		t.Fatal(err)
	}
	// Between 89 and 91 seconds.
	if s.RunID != "abc" || !s.Replica || s.Primary != "h:1" || s.Cluster ||
		now.Sub(s.Booted) != 89*time.Second || s.Name != "a:1" {
		t.Errorf("%+v", s)
	}
	for version, want := range map[string]bool{"6.2.0": true, "6.1.9": false, "5.0.14": false,
		"10.0.1": true, "255.255.255": true, "7": false, "x.y": false, "": false} {
		if got := (&protocol.Server{Version: version}).AtLeast(6, 2); got != want {
			t.Errorf("version %q is at least 6.2: %v", version, got)
		}
	}
	for _, bad := range []string{"", "run_id:x\r\n", "redis_version:7.0.0\r\nrun_id:x\r\n",
		strings.Replace(info, "standalone", "sentinel", 1), strings.Replace(info, ":90", ":x", 1)} {
		if s, err := protocol.ParseInfo("", bad, now); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

// K5: a server whose wall clock was set back says that it will start later. It is served, and
// counts as just started.
func TestK5_UptimeBelowZero(t *testing.T) {
	now := time.Now()
	s, err := protocol.ParseInfo("x",
		"redis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:-90\r\n", now)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Booted.Equal(now) {
		t.Errorf("started %v after its answer", s.Booted.Sub(now))
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add("redis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:90\r\n")
	now := time.Now()
	f.Fuzz(func(t *testing.T, info string) {
		s, err := protocol.ParseInfo("", info, now)
		if err == nil && (s.RunID == "" || s.Version == "" || s.Booted.After(now)) {
			t.Errorf("%q: %+v", info, s)
		}
	})
}
