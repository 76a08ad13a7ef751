//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() { roles["stall"] = stall }

// stall keeps the mutex of FILEHOLD_TEST_DIR.
func stall() {
	_, err := filehold.StallDir(os.Getenv("FILEHOLD_TEST_DIR"))
	check(err)
	fmt.Println("stalled")
	io.Copy(io.Discard, os.Stdin)
}

func startStall(t *testing.T, dir string) (pid int, kill func()) {
	t.Helper()
	cmd := command("stall", "FILEHOLD_TEST_DIR="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		stdin.Close()
		cmd.Wait()
	}
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

// names checks that the error says which process is to blame, where the system tells.
func names(t *testing.T, what string, err error, pid int) {
	t.Helper()
	says := "kept locked by another process"
	if runtime.GOOS == "linux" {
		says = fmt.Sprintf("kept locked by process %d", pid)
	}
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want it to say %q", what, err, says)
	}
}

// TestStalledMutex has another process keep the mutex, as one does that is stopped at the wrong moment.
func TestStalledMutex(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, d := claim("k"), claim("d")
	acquire(t, b, c)
	acquire(t, b, d)
	pid, kill := startStall(t, dir)

	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 100*time.Millisecond)
	}
	other := claim("other")
	for what, call := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, other); return err },
		"renew":   func(ctx context.Context) error { _, err := b.Renew(ctx, []driver.Claim{c}); return err },
	} {
		ctx, cancel := short()
		err := call(ctx)
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || driver.Permanent(err) {
			t.Errorf("%s: %v; want a passing ErrUnavailable that is DeadlineExceeded", what, err)
		}
		names(t, what, err, pid)
	}
	// A release counts when it can.
	ctx, cancel := short()
	_, err := b.Release(ctx, c)
	cancel()
	if !errors.Is(err, driver.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("release: %v; want ErrUnknown that is DeadlineExceeded", err)
	}
	names(t, "release", err, pid)
	filehold.SetOpenPatience(t, 100*time.Millisecond)
	_, err = filehold.Open(dir)
	if !errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) {
		t.Errorf("open: %v; want a passing ErrUnavailable", err)
	}
	names(t, "open", err, pid)
	// What can be seen without the mutex is seen.
	if e, err := b.Inspect(context.Background(), "d"); err != nil || e.Holder.Owner != d.Owner {
		t.Errorf("inspect: %+v, %v", e, err)
	}
	// Who asks again and again leaves nothing behind.
	for range 1000 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
		if _, err := b.Acquire(ctx, other); err == nil {
			t.Fatal("acquired while stalled")
		}
		cancel()
	}
	if n := filehold.Queued(b); n > 200 {
		t.Errorf("%d calls that were given up wait for their turn", n)
	}

	kill()
	want(t, "key released meanwhile", acquire(t, b, claim("k")), driver.Held)
	want(t, "key never acquired", acquire(t, b, claim("other")), driver.Held)
	want(t, "renewal", renew(t, b, d)[0], driver.Held)
}

// TestCloseWhileStalled closes while the mutex cannot be had.
func TestCloseWhileStalled(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	w := open(t, dir)
	notices := listen(w)
	free := claim("free")
	acquire(t, b, free)
	release(t, b, free)
	first, second := queued("k"), queued("k")
	acquire(t, w, second) // holds it
	acquire(t, b, first)  // waits
	_, kill := startStall(t, dir)
	hanging := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), claim("x"))
		hanging <- err
	}()
	b.Close()
	if err := <-hanging; !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("a call that hung: %v; want a permanent ErrUnavailable", err)
	}
	kill()
	// It is not a member any more, though it could not clean up: its waiter is skipped.
	third := queued("k")
	acquire(t, w, third)
	want(t, "release", release(t, w, second), driver.Held)
	granted(t, notices, third)
	release(t, w, third)
	w.Close()
	tidy(t, dir)
}

// TestReleaseLeftBehindCounts gives up waiting for a release, and then closes.
func TestReleaseLeftBehindCounts(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := claim("k")
	acquire(t, b, c)
	_, kill := startStall(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Release(ctx, c); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("release: %v; want ErrUnknown", err)
	}
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	kill()
	<-closed
	want(t, "next", acquire(t, open(t, dir), claim("k")), driver.Held)
}
