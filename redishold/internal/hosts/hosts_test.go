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
