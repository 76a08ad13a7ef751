package child_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// TestContinuedByOthers: a child that somebody has stopped and continued counts as running. A
// signal then reaches it without the SIGCONT for a stopped child.
func TestContinuedByOthers(t *testing.T) {
	r := start(t, guard, `echo $$; exec env `+role.Variable+`=listener "$0"`)
	pid, err := strconv.Atoi(<-r.lines)
	if err != nil {
		t.Fatal(err)
	}
	r.expect("ready")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.stops:
		if !strings.Contains(err.Error(), "SIGSTOP") {
			t.Errorf("told %v", err)
		}
	case <-time.After(guard):
		t.Fatal("nobody tells that it is stopped")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGCONT, syscall.SIGHUP, syscall.SIGUSR1} {
		if s != syscall.SIGCONT {
			r.signals <- s
		}
		r.expect(fmt.Sprint(int(s)))
	}
	r.stdin.Close()
	if got := r.end(); got.Code != 0 {
		t.Errorf("got %+v", got)
	}
	if rest := r.rest(); len(rest) > 0 {
		t.Errorf("signals that nobody sent: %q", rest)
	}
}
