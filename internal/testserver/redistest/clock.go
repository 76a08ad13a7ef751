//go:build unix

package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// clockSource is a library that is loaded before the C library and shifts the wall clock that a
// process reads. libfaketime does not serve: it hangs Debian's redis-server, which allocates memory
// before the library is ready.
//
//go:embed preload/clock.c
var clockSource []byte

// Clock is the wall clock of the servers that were started with it.
type Clock struct {
	library string // path
	offset  *os.File

	mu      sync.Mutex
	shifted time.Duration
}

// NewClock makes a clock that shows the right time. It needs a C compiler.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Clock{library: filepath.Join(dir, "clock.so")}
	if out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", c.library,
		source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: install Debian's gcc and libc6-dev\n%s", err, out)
	}
	var err error
	if c.offset, err = os.Create(filepath.Join(dir, "offset")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.offset.Close() })
	c.Step(t, 0)
	return c
}

// Step sets the clock forward by d, or back. Servers see it with their next reading, which Valkey
// from 9.1 on makes once in a millisecond: in between it adds the time by its monotonic clock.
func (c *Clock) Step(t testing.TB, d time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shifted += d
	// One write of eight bytes, aligned: a process that has the file mapped sees the old value or
	// the new one.
	if _, err := c.offset.WriteAt(binary.NativeEndian.AppendUint64(nil,
		uint64(c.shifted.Microseconds())), 0); err != nil {
		t.Fatal(err)
	}
}

// Stop makes the clock stand still until [Clock.Step] sets it: no lease ends and no waiter is gone,
// however busy the machine is. It goes on by a microsecond with each reading, so servers still tell
// who came first.
func (c *Clock) Stop(t testing.TB) {
	t.Helper()
	if _, err := c.offset.WriteAt(binary.NativeEndian.AppendUint64(nil,
		uint64(time.Now().UnixMicro())), 8); err != nil {
		t.Fatal(err)
	}
}

// WithClock makes the server use the clock.
func WithClock(c *Clock) Option {
	return func(s *Server) {
		s.Env = append(s.Env, "LD_PRELOAD="+c.library, "REDISTEST_CLOCK="+c.offset.Name())
	}
}
