package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

// TestAddressInTheWrongPlace: what is in front of an @ is not shown, even if --on was forgotten.
func TestAddressInTheWrongPlace(t *testing.T) {
	const secret = "hunter2"
	for _, args := range [][]string{
		{"adopt", "redlock://:hunter2@h1,h2,h3"},
		{"version", "redis://:hunter2@h"},
		{"help", "redis://:hunter2@h"},
		{"man", "redis://:hunter2@h"},
		{"help", "run", "redis://:a hunter2@h"},
		{"man", "--dir", "pages", "redis://:hunter2@h"},
		{"completion", "redis://:hunter2@h"},
		{"adopt", "--on", "redis://h?sentinel-password=hunter2"},
		{"redis://:a hunter2@h"},
		{"run", "-on=redis://:a hunter2@h", "n", "--", "true"},
		{"run", "redis://:a hunter2@h", "n", "--", "true"},
		{"run", "-on=user:hunter2@h", "n", "--", "true"},
		{"run", "--ttl", "redis://:a hunter2@h", "n", "--", "true"},
		{"fence", "redis://:hunter2@h"},
		{"ls", "redis://:hunter2@h"},
		{"leaks", "redis://:hunter2@h"},
		{"board", "redis://:hunter2@h"},
		{"board", "--listen", "redis://:hunter2@h"},
		{"board", "--listen", "redis://:hunter2@h:8420"},
		{"board", "--host", "redis://:hunter2@h"},
		{"inspect", "redis://:hunter2@h"},
		{"release", "--yes", "--token", "redis://:hunter2@h", "n"},
		{"release", "--yes", "--token", "1", "redis://:hunter2@h"},
		{"inspect", "redis://:hunter2@h", "n"},
		{"ls", "-on=redis://:a hunter2@h"},
		{"fence", "init", "redis://:hunter2@h"},
		{"fence", "advance", "--on", "postgres://:hunter2@h?x"},
		{"fence", "advance", "--on", "postgres://:hunter2@h/d", "--tokn", "r"},
		{"fence", "advance", "--on", "postgres://h/d", "--token", "redis://:hunter2@h", "r"},
		{"run", "--on", "redis+sentinel://h/m?sentinel-password=hunter2&wait=x", "n", "--", "true"},
	} {
		var out, err bytes.Buffer
		if code := cli.Main(args, &out, &err); code != 64 {
			t.Errorf("%q: exit code %d: %s", args, code, err.String())
		}
		if text := out.String() + err.String(); strings.Contains(text, secret) {
			t.Errorf("%q: %s", args, text)
		}
		if text := err.String(); strings.Count(text, `"`)%2 != 0 {
			t.Errorf("%q: a quote without its other half: %s", args, text)
		}
	}
}
