package hosts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/redishold/internal/hosts"
)

func TestParse(t *testing.T) {
	for list, want := range map[string][]string{
		"h":                  {"h:1"},
		"h:2,g,[::1],[::]:3": {"h:2", "g:1", "[::1]:1", "[::]:3"},

		"[fe80::A]:2,[::ffff:1.2.3.4]:65535": {"[fe80::A]:2", "[::ffff:1.2.3.4]:65535"},
		"[fe80::1%eth0],[fe80::1%25eth0]:2":  {"[fe80::1%eth0]:1", "[fe80::1%eth0]:2"},
	} {
		if got, err := hosts.Parse(list, "1"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for list, words := range map[string]string{
		"":            "the host has no name",
		":2":          "the host has no name",
		"a,,b":        "host 2 of 3 has no name",
		"a,:2":        "host 2 of 2 has no name",
		"a,b:x":       "host 2 of 2 has a port that is not",
		"h:0":         "the host has a port that is not",
		"h:65536":     "the host has a port that is not",
		"a, b":        "host 2 of 2 has a space",
		"a\n":         "the host has a space",
		"u:secret:h":  "the host must be",
		"::1":         "the host must be",
		"a,b],c":      "host 2 of 3 must be",
		"u:secret,h":  "host 1 of 2 has a port that is not",
		"[::1]secret": "the host must be",
	} {
		got, err := hosts.Parse(list, "1")
		if err == nil || !strings.Contains(err.Error(), words) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q, %v; want %q in the error", list, got, err, words)
		}
	}
}

// TestBrackets: in brackets is an IPv6 address and nothing else. Else a login without its '@' would
// be looked up as a host, and shown in the error about it.
func TestBrackets(t *testing.T) {
	for _, host := range []string{"[", "]", "a[", "[]", "[]:1", "[a", "a]", "[a]", "[a]:1", "[a:1]",
		"[1.2.3.4]", "[::1", "::1]", "[::1]]", "[[::1]", "[[::1]]", "[::1]x", "x[::1]", "[::1]1",
		"[::1]:2]", "[::1]:[2]", "[::1]:[2", "[::1]:2:3", "[::1][::2]", "[::1]:1[::2]", "[::1]]:1",
		"[::1%]", "[::1]%eth0", "[a]b[c]", "a[b]:1", "a:[1]", "a:1]", "[user:secret]"} {
		got, err := hosts.Parse(host, "1")
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(),
			"the host must be host:port, or [IPv6]:port with nothing but an IPv6 address in brackets") {
			t.Errorf("%q: %q, %v; want an error that shows no part of it", host, got, err)
		}
	}
}
