package backendurl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/driver"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ raw, shown, prefix string }{
		{"file:///var/lib/x", "file:///var/lib/x", ""},
		{"FILE:///x", "file:///x", ""},
		{"file:/x", "file:///x", ""},
		{"file://localhost/x", "file:///x", ""},
		{"file:", "file:", ""},
		{"file:?prefix=a", "file:", "a"},
		{"file:///x?prefix=a%2Fb&shared=true", "file:///x", "a/b"},
		{"file:///x?prefix=", "file:///x", ""},
		{"file:///x?", "file:///x", ""},
		{"file:///a%20b%2525", "file:///a%20b%2525", ""},
		{"file:///a@b", "file:///a%40b", ""},
		{"test://h1:1,[::1]:2,h3/0", "test://h1:1,[::1]:2,h3/0", "lock:"},
		{"test://user:pass@h1,h2?password=x%40y", "test://h1,h2", "lock:"},
		{"test://h?prefix=", "test://h", ""},
		{"redlock://:pass@h1:1,h2:2,[::1]/3?prefix=&restart-guard=0s&node-timeout=1s&durable=always",
			"redlock://h1:1,h2:2,[::1]/3", ""},
		{"redlocks://h1,h2,h3", "redlocks://h1,h2,h3", "lock:"},
		{"etcd://u:p@h1,h2:1/team/a?prefix=x", "etcd://h1,h2:1/team/a", "x"},
		{"etcds://h1", "etcds://h1", ""},
		{"etcd+unix:///run/etcd", "etcd+unix:///run/etcd", ""},
		{"zookeeper://u:p@h1,h2:1/a/b?session=9s&prefix=x", "zookeeper://h1,h2:1/a/b", "x"},
	} {
		t.Run(test.raw, func(t *testing.T) {
			a, err := backendurl.Parse(test.raw)
			if err != nil {
				t.Fatal(err)
			}
			if a.String() != test.shown || a.Prefix() != test.prefix {
				t.Errorf("got %q with prefix %q, want %q with prefix %q", a, a.Prefix(),
					test.shown, test.prefix)
			}
		})
	}
}

// A client reads the values that the command has read, also one that takes a '+' for itself, as
// that of PostgreSQL does.
func TestParametersPassedOn(t *testing.T) {
	t.Cleanup(func() { delete(backendurl.Clients, backendurl.PostgresProgram) })
	var got string
	backendurl.Clients[backendurl.PostgresProgram] = backendurl.Client{
		Validate: func(address string) error { got = address; return nil },
	}
	const raw = "postgres://u:p@h/d?passfile="
	for value, want := range map[string]string{"/a%20b": "/a%20b", "/a+b": "/a%20b",
		"/a%2Bb": "/a%2Bb"} {
		_, err := backendurl.Parse(raw + value)
		want = raw + strings.ReplaceAll(want, "/", "%2F")
		if err != nil || got != want {
			t.Errorf("%s is passed on as %s (%v), want %s", raw+value, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const forms = "file://"
	const longest = 300 // of an error: the forms of all addresses are in the help
	for _, test := range []struct {
		raw  string
		want []string // all must be in the error
	}{
		{"", []string{"no scheme", forms}},
		{"/var/lib/x", []string{"no scheme", forms}},
		{"1file:///x", []string{"no scheme", forms}},
		{"localhost:6379", []string{"no scheme", forms}},
		{"files:///x", []string{`unknown scheme "files"`, forms}},
		{"memory:", []string{"memory:", "this one process", forms}},
		{"memory://x", []string{"memory:", "this one process"}},
		{"consul://host", []string{"consul:", "not part of this build", forms}},
		{"etcd:host", []string{"etcd://"}},
		{"etcd://host?tls-ca=x", []string{"parameter 1 is unknown", "password-file"}},
		{"redis:host", []string{"redis://"}},
		{"redis://a,b", []string{"2 hosts", "redis+cluster://"}},
		{"redis://host?tls-ca=x", []string{"parameter 1 is unknown", "wait-timeout"}},
		{"redis+sentinel://host", []string{"primary", "redis+sentinel://"}},
		{"redlock:h1,h2,h3", []string{"redlock://"}},
		{"redlock://h1:1", []string{"1 hosts", "at least 3", "redis://", "write redlock://"}},
		{"redlock://u:p@h1,u:p@h2,u:p@h3", []string{"once", "in front of the first host"}},
		{"redlock://h1,h2,h1", []string{"hosts 1 and 3", "two votes"}},
		{"redlock://h1,h2,h3?restart-guard=60", []string{"restart-guard", "must be a duration"}},
		{"redlock://h1,h2,h3?wait=1",
			[]string{"parameter 1 is unknown",
				"db, durable, node-timeout, prefix, restart-guard, set"}},
		{"redlocks://h1,h2,h3?tls-ca=/no/such/file", []string{"/no/such/file"}},
		{"redlock://h1,h2,h3,h4,h5,h6,h7,h8,h9,h10", []string{"at most 9"}},
		{"file:dir", []string{"not absolute", forms}},
		{"file://dir", []string{"host", "three", forms}},
		{"file://dir/sub", []string{"host", "three", forms}},
		{"file://", []string{"not absolute"}},
		{"file:///a%", []string{"%", "hex"}},
		{"file:///a%00", []string{"zero byte"}},
		{"file:///a\nb", []string{"control character at byte 9"}},
		{"file:///a#b", []string{"#", "%23"}},
		{"file:///x?prefx=a", []string{"parameter 1 is unknown", "file:", "prefix, shared"}},
		{"file:///x?prefix", []string{"parameter 1 is unknown", "file:", "prefix, shared"}},
		{"file:///x?%zz=a", []string{"parameter 1", "hex"}},
		{"file:///x?prefix=%zz", []string{"parameter 1", "hex"}},
		{"file:///x?prefix=a&prefix=b", []string{"parameter 2", "twice"}},
		{"file:///x?shared=perhaps", []string{"shared", "true", "false"}},
		{"file:///x?prefix=" + strings.Repeat("a", driver.MaxKeyLen), []string{"prefix", "1024"}},
		{"file://user@/x", []string{"no user"}},
		{"file://@/x", []string{"no user"}},
		{"test://user:a/b@h", []string{"@", "%2F"}},
	} {
		t.Run(test.raw, func(t *testing.T) {
			a, err := backendurl.Parse(test.raw)
			if err == nil {
				t.Fatalf("got %v, want an error", a)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
			if size := len(err.Error()); size > longest {
				t.Errorf("%d bytes, at most %d are allowed: %q", size, longest, err)
			}
		})
	}
}

// secret must not be in an address by chance.
const secret = "hunter" // in lower case, as names of hosts and parameters are

// secrets are addresses with a password where people put one, or where it ends up if a character is
// not escaped.
var secrets = []string{
	secret,
	secret + ":",
	secret + ":x@host",
	"user:" + secret + "@host",
	"redis:" + secret,
	"redis://" + secret + "@host",
	"redis://user:" + secret + "@host",
	"redis://:" + secret + "/x@host",
	"redis://:x/" + secret + "@host",
	"redis://:x?" + secret + "@host",
	"redis://:x?a=" + secret + "@host",
	"redis://:x#" + secret + "@host",
	"redis://host?password=" + secret,
	"test://user:" + secret + "@host",
	"test://:" + secret + "/x@host",
	"test://:x/" + secret + "@host",
	"test://:x@" + secret + "@host",
	"test://:x?" + secret + "@host",
	"test://:x?a=" + secret + "@host",
	"test://:x#" + secret + "@host",
	"test://host?password=" + secret,
	"redlock://:" + secret + "@h1,h2,h3",
	"redlock://:" + secret + "@h1,h2",
	"redlock://:" + secret + "/x@h1,h2,h3",
	"redlock://:x?" + secret + "@h1,h2,h3",
	"redlock://:" + secret + "@h1,h2,h3:x",
	"redlocks://:" + secret + "@h1,h2,h3?tls-ca=/no",
	"unknown://:" + secret + "@host",
	"unknown://:x/" + secret + "@host/" + secret,
	"memory://" + secret + "@",
	"file://" + secret + "@host/x",
	"file://user:" + secret + "/x@host/x",
	"file:user:" + secret + "@host",
	"file:" + secret + "@host",
	"file:///x?password=" + secret,
	"file:///x?password=" + secret + "%zz",
	"file:///x?shared=" + secret,
	"file:///x?prefix=" + secret + "&prefix=" + secret,
	"file:///x?prefix=" + secret,
	"file:///x?password=a&" + secret,
	"file:///x?password=a&b" + secret + "=x",
	"redis://user:" + secret + ":host",
	"redis://user:" + secret + ",host",
	"redlock://user:" + secret + ":h1,h2,h3",
	"redis+sentinel://h/p?sentinel-password=a&" + secret,
	"redis+sentinel://h/p?sentinel-password=a&" + secret + "=b",
	"redis+sentinel://h/p?sentinel-password=a%zz" + secret,
	"redis+sentinel://h/p?sentinel-password=" + secret + "&sentinel-password=" + secret,
}

func TestParseShowsNoSecret(t *testing.T) {
	for _, raw := range secrets {
		if text := everythingShown(raw); strings.Contains(text, secret) {
			t.Errorf("%s: shows %q", raw, text)
		}
	}
}

// everythingShown returns everything that Parse shows of an address.
func everythingShown(raw string) string {
	a, err := backendurl.Parse(raw)
	if err != nil {
		return err.Error()
	}
	return a.String()
}

// FuzzURL builds addresses from pieces, with the secret in each place where one may be, and also
// parses the pieces alone. Parse does not panic. It returns an address, or an error that says what
// is allowed, and neither shows the secret.
func FuzzURL(f *testing.F) {
	f.Add("file", "user", "host", "/dir", "prefix", "x")
	f.Add("test", "u:p", "h1:1,h2:2", "/0", "password", "x")
	f.Add("redis", "u:p", "h1:1,h2:2", "/0", "password", "%zz")
	f.Add("memory", "", "", "", "", "")
	f.Add("redis", "u", "h", "/0", "wait", "1")
	f.Add("rediss", "u", "h", "/0", "tls-ca", "/")
	f.Add("redis+sentinel", "u", "h", "/p", "sentinel-password", "x")
	f.Add("redis+cluster", "u", "h:1,g:2", "", "wait-timeout", "1s")
	f.Add("redlock", "u", "h,g:2,[::1]", "/1", "node-timeout", "1s")
	f.Add("redis+unix", "", "", "/run/redis.sock", "db", "0")
	f.Add("redis", "u", "h", "", "db", ":")
	f.Add("redis+cluster", "u", "h,g", "", "db", ";")
	f.Add("redis+sentinel", "a/b", "[::1]:1", "/?", "a=b", "&")
	f.Add("file", "#", "localhost", "/a%00", "shared", "true")
	f.Add("", "@", "\x00", "..", "%", "\xff")
	f.Fuzz(func(t *testing.T, scheme, user, host, path, param, value string) {
		for _, piece := range []string{scheme, user, host, path, param, value} {
			if strings.Contains(piece, secret) {
				return // not secret in that place
			}
			check(t, piece)
		}
		urls := []string{
			scheme + "://" + user + ":" + secret + "@" + host + path + "?" + param + "=" + value,
			scheme + "://" + secret + user + "@" + host + path,
			scheme + ":" + user + secret + "@" + host + path,
			scheme + "://" + host + path + "?" + param + "=" + value + secret,
			scheme + "://" + host + path + "?" + param + "=" + secret + value + "&" + param +
				"=" + value,
		}
		// the parse functions of these show everything but a login
		known := strings.EqualFold(scheme, "test") || strings.EqualFold(scheme, "file")
		if !known && !strings.ContainsAny(user+value, "/?#,@") {
			// with another character in place of the @
			urls = append(urls, scheme+"://"+user+":"+secret+value+host+path)
		}
		if !strings.ContainsAny(value, "=#") {
			urls = append(urls, scheme+"://"+host+path+"?sentinel-password="+value+"&"+secret)
		}
		for _, raw := range urls {
			if text := check(t, raw); strings.Contains(text, secret) &&
				!fileWithoutUser(scheme, raw) && !isPublic(param, raw) {
				t.Errorf("%q shows %q", raw, text)
			}
		}
	})
}

// isPublic reports whether the secret is the value of a parameter that is not secret, and may be
// shown in an error.
func isPublic(param, raw string) bool {
	for _, public := range []string{"wait", "wait-timeout", "tls-ca", "tls-cert", "tls-key", "db",
		"restart-guard", "node-timeout"} {
		if param == public && strings.Contains(raw, "?"+param+"=") {
			return true
		}
	}
	return false
}

// fileWithoutUser reports whether the part that looks like a user belongs to a path:
// file:///user:secret@host.
func fileWithoutUser(scheme, raw string) bool {
	rest := strings.TrimPrefix(raw[len(scheme):], ":")
	return strings.EqualFold(scheme, "file") && (strings.HasPrefix(rest, "///") ||
		strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "//") ||
		strings.HasPrefix(strings.ToLower(rest), "//localhost/"))
}

// check parses one address and returns everything that is shown of it.
func check(t *testing.T, raw string) string {
	a, err := backendurl.Parse(raw)
	if (a == nil) == (err == nil) {
		t.Fatalf("%q: got %v and %v", raw, a, err)
	}
	if err != nil {
		text := err.Error()
		for _, allowed := range []string{"file:", "%", "twice", "true nor false", "may have",
			"zero byte", "use one of", "takes", "write "} {
			if strings.Contains(text, allowed) {
				return text
			}
		}
		t.Errorf("%q: %q does not say what is allowed", raw, text)
		return text
	}
	again, err := backendurl.Parse(a.String())
	if err != nil || again.String() != a.String() {
		t.Errorf("%q is shown as %q, which gives %v, %v", raw, a, again, err)
	}
	return a.String()
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, raw := range []string{"file://" + dir, "file:" + dir, "file://" + dir + "?shared=true"} {
		a, err := backendurl.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Open(t.Context(), nil)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		b.Close()
	}
	a, err := backendurl.Parse("file://" + dir + "/missing/too")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := a.Open(t.Context(), nil); err == nil || b != nil {
		t.Errorf("got %v, %v from a directory that cannot be", b, err)
	}
}

// TestCheckTTL: a TTL that a set of servers cannot grant is refused without a request.
func TestCheckTTL(t *testing.T) {
	for _, test := range []struct {
		raw  string
		ttl  time.Duration
		want string // in the error; no error if empty
	}{
		{"redlock://a,b,c", time.Minute, ""},
		{"redlock://a,b,c", time.Minute + 1, "restart-guard"},
		{"redlock://a,b,c?restart-guard=1h", time.Hour, ""},
		{"redlock://a,b,c?restart-guard=0s", 24 * time.Hour, ""},
		{"redlocks://a,b,c?restart-guard=1s", 2 * time.Second, "restart-guard"},
		{"redlock://a,b,c?node-timeout=1s", 2 * time.Second, ""},
		{"redlock://a,b,c?node-timeout=1s", time.Second, "node-timeout"},
		{"zookeeper://a", 30 * time.Second, ""},
		{"zookeeper://a", 30*time.Second + 1, "three quarters of session, which are 30s"},
		{"zookeeper://a?session=10m", 450 * time.Second, ""},
		{"zookeeper://a?session=8s", 7 * time.Second, "session, which are 6s"},
		{"redis://a", 24 * time.Hour, ""},
		{"file:///x", 24 * time.Hour, ""},
	} {
		a, err := backendurl.Parse(test.raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckTTL(test.ttl); (err == nil) != (test.want == "") || err != nil &&
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %v: %v; want %q", test.raw, test.ttl, err, test.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, want := range []string{"file:///dir", "?prefix=", "?shared="} {
		if !strings.Contains(backendurl.Help(), want) {
			t.Errorf("%q does not mention %s", backendurl.Help(), want)
		}
	}
}
