package redishold_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// marker is in no URL by chance, and is recognised in lower case too: names of hosts are.
const marker = "S3cReT"

// tells reports whether a text holds the marker.
func tells(text string) bool {
	return strings.Contains(strings.ToLower(text),
		strings.ToLower(marker))
}

// FuzzSecrets puts a secret where users put one, well formed or with a character that should have
// been escaped, or with a mistake for the @, and checks that no error and no address that is shown
// holds any of it.
func FuzzSecrets(f *testing.F) {
	for _, separator := range []string{"@", ":", "/", "?", "#", ",", ";", " ", "%40", "@x@", "&",
		"]"} {
		f.Add("redis", "u", "", "", separator, "h:1", "/2", "db", "3")
	}
	f.Add("redis", "u", "p:", "", "@", "h", "/x", "sentinel-password", "a")
	f.Add("redis+sentinel", "", "a&", "", "@", "h,g:1", "/p/1", "sentinel-password", "")
	f.Add("redis+sentinel", "u", "a@b/", "", "@", "h,g:1", "/p", "sentinel-user", "&b=")
	f.Add("redis+sentinel", "u", "@", "/x", "@", "h", "/p", "sentinel-password", "&b")
	f.Add("rediss+cluster", "u", "@x?", "", "@", "h,,g", "", "wait", "1")
	f.Add("redis+unix", "u", "", "", "@", "", "/run/s", "db", "x")
	f.Add("redis+unix", "u", "", "/", "@", "h", "/run/s", "db", "x")
	f.Add("redis+cluster", "u", "", ",g", ":", "h", "/", "wait-timeout", "1")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, separator, hosts, path, param,
		value string) {
		for _, public := range []string{scheme, user, hosts, path, param, value} {
			if tells(public) || strings.Contains(public, "tls-") {
				return // not secret there, or names files that would be read
			}
		}
		if strings.Contains(before+after, "tls-") || strings.ContainsAny(user, "/?#") {
			return // the user is escaped: it is the secret that is not
		}
		secret := before + marker + after
		urls := []string{
			scheme + "://" + user + ":" + secret + "@" + hosts + path + "?" + param + "=" + value,
			scheme + "://" + secret + "@" + hosts + path,
			scheme + "://" + user + ":" + url.QueryEscape(secret) + "@" + hosts + path + "?" +
				param + "=" + value,
			scheme + "://" + hosts + path + "?sentinel-password=" + url.QueryEscape(secret) + "&" +
				param + "=" + value,
		}
		if !strings.Contains(secret, "=") {
			urls = append(urls, scheme+"://"+hosts+path+"?sentinel-password="+secret,
				scheme+"://"+hosts+path+"?sentinel-user="+secret+value)
		}
		if !strings.ContainsAny(secret+separator, "/?#,@") {
			// An @ was forgotten, or written otherwise.
			urls = append(urls, scheme+"://"+user+":"+secret+separator+hosts+path)
		}
		for _, raw := range urls {
			mustNotTell(t, raw)
		}
	})
}

// mustNotTell opens a URL without connecting, and looks at all that a caller gets to see.
func mustNotTell(t *testing.T, raw string) {
	t.Helper()
	b, err := redishold.Open(context.Background(), raw, redishold.WithoutConnecting())
	if err != nil {
		if tells(err.Error()) {
			t.Errorf("%q: %v", raw, err)
		}
		return
	}
	b.Close()
	p, err := redishold.Parse(raw)
	if err != nil {
		t.Fatalf("%q: Open takes it, and then: %v", raw, err)
	}
	if shown := strings.Join(p.Addresses, " ") + " " + p.Primary; tells(shown) {
		t.Errorf("%q is shown as %q", raw, shown)
	}
}

// A server repeats the beginning of a command that it does not know, and the greeting has the login
// in it.
func TestServersWordsTellNoSecret(t *testing.T) {
	t.Parallel()
	for name, option := range map[string][]redistest.Option{
		"no HELLO": {redistest.WithArgs("--rename-command", "HELLO", "")},
		"login, no HELLO": {redistest.WithPassword(marker),
			redistest.WithArgs("--rename-command", "HELLO", "")},
		"no AUTH": {redistest.WithArgs("--rename-command", "AUTH", "")},
		"no HELLO, no AUTH": {redistest.WithArgs("--rename-command", "AUTH", "", "--rename-command",
			"HELLO", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, option...)
			for _, login := range []string{marker + "u:" + marker, ":" + marker, "u:" + marker} {
				for _, scheme := range []string{"redis://", "redis+cluster://"} {
					b, err := redishold.Open(t.Context(), scheme+login+"@"+server.Addr)
					if err == nil {
						b.Close()
						continue
					}
					if tells(err.Error()) {
						t.Errorf("%s, %s: %v", scheme, login, err)
					}
				}
				b, err := redishold.Open(t.Context(), "redis+sentinel://"+login+"@"+server.Addr+
					"/p?sentinel-password="+marker)
				if err == nil {
					b.Close()
				} else if tells(err.Error()) {
					t.Errorf("Sentinel, %s: %v", login, err)
				}
			}
		})
	}
}
