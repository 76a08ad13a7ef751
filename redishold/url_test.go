package redishold_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

func TestURL(t *testing.T) {
	type parsed = redishold.Parsed
	for url, want := range map[string]parsed{
		"redis://h":        {Addresses: []string{"h:6379"}},
		"redis://h:1/":     {Addresses: []string{"h:1"}},
		"redis://h:1/7":    {Addresses: []string{"h:1"}, Database: 7},
		"redis://h:1?db=7": {Addresses: []string{"h:1"}, Database: 7},
		"rediss://h":       {Addresses: []string{"h:6379"}, TLS: true},
		"redis://[::1]":    {Addresses: []string{"[::1]:6379"}},
		"redis://[::1]:1":  {Addresses: []string{"[::1]:1"}},
		"redis://u:p@h": {Addresses: []string{"h:6379"}, Username: "u",
			Password: "p"},
		"redis://:" + escapedSecret + "@h": {Addresses: []string{"h:6379"}, Password: secret},
		"redis://u@h":                      {Addresses: []string{"h:6379"}, Username: "u"},
		"redis+unix:///a/b.sock?db=2": {Addresses: []string{"/a/b.sock"}, Unix: true,
			Database: 2},
		"redis+unix://:p@/a/b.sock": {Addresses: []string{"/a/b.sock"}, Unix: true,
			Password: "p"},
		"redis+cluster://a,b:1,[::1]": {Addresses: []string{"a:6379", "b:1", "[::1]:6379"}},
		"rediss+cluster://u:p@a,b": {Addresses: []string{"a:6379", "b:6379"}, Username: "u",
			Password: "p", TLS: true},
		"redis+sentinel://a,b:1/p": {Addresses: []string{"a:26379", "b:1"}, Primary: "p"},
		"redis+sentinel://a/p/3": {Addresses: []string{"a:26379"}, Primary: "p",
			Database: 3},
		"redis+sentinel://a/p?sentinel-user=s&sentinel-password=" +
			escapedSecret: {Addresses: []string{"a:26379"}, Primary: "p", SentinelUser: "s",
			SentinelSecret: secret},
		"redis://h?wait=2&wait-timeout=250ms": {Addresses: []string{"h:6379"}, Replicas: 2,
			WaitTimeout: 250 * time.Millisecond},
	} {
		got, err := redishold.Parse(url)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
}

func TestURLBadInput(t *testing.T) {
	certificates := redistest.NewCertificates(t)
	for url, words := range map[string]string{
		"":                                "redis://",
		"h:6379":                          "redis://",
		"http://h":                        "redis://",
		"REDIS://h":                       "redis://",
		"redis://":                        "no name",
		"redis:///1":                      "no name",
		"redis://u:p@":                    "no name",
		"redis+sentinel:///p":             "no name",
		"redis://h:0":                     "port",
		"redis://h:65536":                 "port",
		"redis://h:x":                     "port",
		"redis://a:1:2":                   "host:port",
		"redis://::1":                     "[IPv6]:port",
		"redis://a,b":                     "2 hosts",
		"redis://h/x":                     "database must be a number",
		"redis://h/-1":                    "database must be a number",
		"redis://h/1/2":                   "database must be a number",
		"redis://h?db=1&db=2":             `"db" is given twice`,
		"redis://h?database=1":            "parameter 1 is unknown",
		"redis://h?prefix=x":              "parameter 1 is unknown",
		"redis://h?wait=x":                `wait "x"`,
		"redis://h?wait=256":              `wait "256"`,
		"redis://h?wait-timeout=0s":       `wait-timeout "0s"`,
		"redis://h?wait-timeout=1m":       `wait-timeout "1m"`,
		"redis://h?%zz":                   "not well formed",
		"redis://h?wait=1&&x=1":           "parameter 2 is unknown",
		"redis://h?wait=1;x=1":            "not well formed",
		"redis://a b":                     "space",
		"redis+cluster://a, b":            "host 2 of 2 has a space",
		"redis+cluster://a,,b":            "host 2 of 3 has no name",
		"redis+sentinel://a,b:x/p":        "host 2 of 2 has a port",
		"redis+unix:///a@b":               "'@' behind",
		"redis://h#x":                     "fragment",
		"redis://:p%zz@h":                 "not well formed",
		"redis+unix://h/a":                "three slashes",
		"redis+unix://":                   "path of a socket",
		"redis+cluster://h/1":             "only database 0",
		"redis+sentinel://h":              "name of the primary",
		"redis+sentinel://h/":             "name of the primary",
		"redis://h?sentinel-password=x":   "redis+sentinel://",
		"redis://h?tls-ca=/x":             "rediss",
		"rediss://h?tls-ca=/no/such/file": "/no/such/file",
		"rediss://h?tls-ca=" +
			certificates.ClientKey: "no certificate",
		"rediss://h?tls-cert=" +
			certificates.ClientCert: "go together",
		"rediss://h?tls-cert=" + certificates.ClientCert + "&tls-key=" +
			certificates.ServerKey: "tls-cert, tls-key",
	} {
		_, err := redishold.Parse(url)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v; want %q in it", url, err, words)
		}
		b, err := redishold.Open(t.Context(), url)
		if !errors.Is(err, driver.ErrInvalid) || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("Open of %s: %v; want ErrInvalid and %q", url, err, words)
		}
		if err == nil {
			b.Close()
		}
	}
	for _, url := range []string{"redis://u:hidden@h:x", "redis://:hidden@a,b",
		"redis://:hidden%zz@h", "redis://:hid@den@h:y", "rediss://:hidden@h?tls-ca=/no",
		"x://:hidden@h",
		"redis+sentinel://h/p?sentinel-password=hidden&what=x",
		"redis://h?sentinel-password=hidden",
		"redis://:hid/den@h", "redis://u:hid?den@h", "redis://u:hid#den@h", "redis://u:p@hid/den@h",
		"redis://u:p?x=hid@h"} {
		if _, err := redishold.Parse(url); err == nil || strings.Contains(err.Error(), "hid") {
			t.Errorf("%s: %v; want an error without the secret", url, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, url := range []string{"redis://u:hidden@h:1/2?db=3",
		"redis+sentinel://:hidden@a,[::1]:2/p/4?sentinel-user=x", "rediss+cluster://a",
		"redis+unix:///x?wait=1"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "tls-") {
			return // would read files
		}
		p, err := redishold.Parse(url)
		switch {
		case err == nil && (len(p.Addresses) == 0 || p.Addresses[0] == "" || p.Database < 0):
			t.Errorf("%q: %+v", url, p)
		case err != nil && strings.Contains(url, ":hidden@") && strings.Count(url, "hidden") == 1 &&
			strings.Contains(err.Error(), "hidden"):
			t.Errorf("%q tells a secret: %v", url, err)
		}
	})
}
