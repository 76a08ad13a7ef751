package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// startReaper starts holdfast run in a process that gets orphans.
func startReaper(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(selfPath, append([]string{holdfastPath, "run"}, args...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, role.Variable+"=reaper")
	return startCommand(t, cmd)
}

// TestOrphansAreReaped: holdfast reaps orphans, as the first process of a container must.
func TestOrphansAreReaped(t *testing.T) {
	p := startReaper(t, locks(t), longTTL, "name", "--", "sh", "-c",
		`(true & echo $!); read x; exit 6`)
	pid := p.line()
	testserver.Eventually(t, "the orphan is gone", func() error {
		_, err := os.Stat("/proc/" + pid)
		return testserver.Not(errors.Is(err, fs.ErrNotExist), "%v", err)
	})
	fmt.Fprintln(p.stdin)
	p.expectExit(6)
}

// TestLossWithOrphans: after a loss, dead orphans in the process group do not make holdfast wait
// for the end of the grace.
func TestLossWithOrphans(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	p := startReaper(t, dir, "--ttl=6s", "--grace=1h", "name", "--", "sh", "-c",
		`sleep 1000 & echo ready; wait`)
	p.expect("ready")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.expectExit(70)
	p.rest()
}
