//go:build unix

package redistest

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// version is that of the redis-server in the PATH. The program says "Redis server v=7.0.15
// sha=...", or the same of Valkey.
var version = sync.OnceValues(func() (v [2]int, err error) {
	words, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return v, err
	}
	match := regexp.MustCompile(` v=(\d+)\.(\d+)\.`).FindSubmatch(words)
	if match == nil {
		return v, fmt.Errorf("redis-server --version says %q", words)
	}
	v[0], _ = strconv.Atoi(string(match[1]))
	v[1], _ = strconv.Atoi(string(match[2]))
	return v, nil
})

// AtLeast reports whether the servers that tests start are of that version of Redis or Valkey, or
// later. Older ones lack some settings and commands that tests use.
func AtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	v, err := version()
	if err != nil {
		t.Fatal(err)
	}
	return v[0] > major || v[0] == major && v[1] >= minor
}
