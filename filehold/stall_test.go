//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() {
	roles["keep"] = keep
	roles["stop"] = stopInside
	roles["stop at"] = stopAt
}

// keep keeps the lock of the key "k" in FILEHOLD_TEST_DIR.
func keep() {
	_, err := filehold.KeepKey(os.Getenv("FILEHOLD_TEST_DIR"), "k")
	check(err)
	fmt.Println("kept")
	io.Copy(io.Discard, os.Stdin)
}

func startKeep(t *testing.T, dir string) (pid int, kill func()) {
	t.Helper()
	cmd := command("keep", "FILEHOLD_TEST_DIR="+dir)
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

// names checks that the error says which key is stuck, and which process is to blame, where the
// system tells.
func names(t *testing.T, what string, err error, pid int) {
	t.Helper()
	says := `key "k" is kept locked by another process`
	if runtime.GOOS == "linux" {
		says = fmt.Sprintf(`key "k" is kept locked by process %d`, pid)
	}
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want it to say %q", what, err, says)
	}
}

// short makes a call with a context that ends while the key is stuck, until the call fails as one
// that has waited: on a busy machine the context may end before the key is asked for.
func short(t *testing.T, call func(context.Context) error, waited func(error) bool) (err error) {
	t.Helper()
	eventually(t, "the call has waited for the key", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err = call(ctx)
		return waited(err)
	})
	return err
}

// blames reports whether the error says who keeps a key locked, or there is none.
func blames(err error) bool {
	return err == nil || strings.Contains(err.Error(), "is kept locked by")
}

// useOtherKeys does everything that a Backend does, except with the keys of a process that is
// stopped. Nothing of it may wait.
func useOtherKeys(t *testing.T, dir string, b *filehold.Backend, held driver.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	other, err := filehold.Open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	notices := listen(other)
	c, w := claim("other"), queued("other")
	if r, err := b.Acquire(ctx, c); err != nil || r.State != driver.Held {
		t.Fatalf("acquire: %+v, %v", r, err)
	}
	if r, err := other.Acquire(ctx, w); err != nil || r.State != driver.Busy {
		t.Fatalf("queue: %+v, %v", r, err)
	}
	if r, err := b.Renew(ctx, []driver.Claim{c, held}); err != nil || r[0].State != driver.Held ||
		r[1].State != driver.Held {
		t.Fatalf("renew: %+v, %v", r, err)
	}
	if r, err := b.Release(ctx, c); err != nil || r.State != driver.Held {
		t.Fatalf("release: %+v, %v", r, err)
	}
	granted(t, notices, w)
	if r, err := other.Release(ctx, w); err != nil || r.State != driver.Held {
		t.Fatalf("release: %+v, %v", r, err)
	}
	found := false
	for e, err := range b.List(ctx, "") {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		found = found || e.Key == held.Key && e.Holder.Owner == held.Owner
	}
	if !found {
		t.Fatal("list: what is held is not in it")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatal("it took for ever")
	}
}

// stopInside is stopped while it acquires the key "k" in FILEHOLD_TEST_DIR.
func stopInside() {
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"))
	check(err)
	filehold.StopAtNextWrite()
	b.Acquire(context.Background(), queued("k"))
	fmt.Println("not stopped")
}

// startStopped starts a process that is stopped while it has the lock of the key "k", and returns
// when it is.
func startStopped(t *testing.T, dir string) (pid int, kill func()) {
	t.Helper()
	cmd := command("stop", "FILEHOLD_TEST_DIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	if status := awaitStop(t, cmd); !status.Stopped() {
		t.Fatalf("the process was not stopped: status %v", status)
	}
	return cmd.Process.Pid, kill
}

// awaitStop waits until a process is stopped or has ended.
func awaitStop(t *testing.T, cmd *exec.Cmd) (status syscall.WaitStatus) {
	t.Helper()
	for {
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil {
			return status
		}
		if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
}

// TestStoppedProcessCostsOtherKeysNothing stops a process while it changes a key. All other keys
// are used as usual. Of its own key, what can be seen is shown, and a caller that asks for it is
// told which process is to blame. When that process is killed, all goes on.
func TestStoppedProcessCostsOtherKeysNothing(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, held := claim("k"), claim("held")
	acquire(t, b, c)
	acquire(t, b, held)
	pid, kill := startStopped(t, dir)
	useOtherKeys(t, dir, b, held)
	if e, err := b.Inspect(context.Background(), "k"); err != nil || e.Holder.Owner != c.Owner {
		t.Errorf("inspect: %+v, %v", e, err)
	}
	err := short(t, func(ctx context.Context) error {
		_, err := b.Renew(ctx, []driver.Claim{c})
		return err
	}, blames)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		driver.Permanent(err) {
		t.Errorf("renewal of the key: %v; want a passing ErrUnavailable that is DeadlineExceeded",
			err)
	}
	names(t, "renewal", err, pid)

	kill()
	want(t, "renewal when it is dead", renew(t, b, c)[0], driver.Held)
	want(t, "release", release(t, b, c), driver.Held)
	want(t, "next", acquire(t, b, claim("k")), driver.Held)
}

// TestStuckKeyDelaysNoOtherRenewal renews a key that is stuck together with others, with a context
// that does not end.
func TestStuckKeyDelaysNoOtherRenewal(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, held := claim("k"), claim("held")
	acquire(t, b, c)
	acquire(t, b, held)
	pid, kill := startKeep(t, dir)
	for range 3 { // before it is known that the key is stuck, and after
		r := renew(t, b, c, held)
		want(t, "the other key", r[1], driver.Held)
		if r[0].State != driver.Unknown || !errors.Is(r[0].Err, driver.ErrUnavailable) ||
			driver.Permanent(r[0].Err) {
			t.Errorf("the key that is stuck: %+v; want a passing ErrUnavailable", r[0])
		}
		names(t, "renewal", r[0].Err, pid)
	}
	kill()
	eventually(t, "both are renewed", func() bool {
		r := renew(t, b, c, held)
		return r[0].State == driver.Held && r[1].State == driver.Held
	})
}

// stopAt does what die does, but is stopped and not killed.
func stopAt() {
	at, err := strconv.Atoi(os.Getenv("FILEHOLD_TEST_AT"))
	check(err)
	filehold.StopAt(at)
	use(os.Getenv("FILEHOLD_TEST_DIR"))
}

// TestStoppedAtAnyCall stops a process before each call with which it changes the directory, also
// while it opens and closes it. Others use all keys but its own; then it goes on to its end, as if
// nothing had been.
func TestStoppedAtAnyCall(t *testing.T) {
	t.Parallel() // with the others that wait for processes and disks
	all := runDie(t, t.TempDir(), 0, false)
	for at := 1; at <= all.calls; at++ {
		if rand.IntN(3) > 0 {
			continue // others at the next run
		}
		dir := t.TempDir()
		b := open(t, dir)
		held := claim("held")
		acquire(t, b, held)
		cmd := command("stop at", "FILEHOLD_TEST_DIR="+dir, "FILEHOLD_TEST_AT="+strconv.Itoa(at))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		status := awaitStop(t, cmd)
		if status.Stopped() {
			useOtherKeys(t, dir, b, held)
			if t.Failed() {
				t.Errorf("stopped at call %d", at)
			}
			cmd.Process.Signal(syscall.SIGCONT)
			status = awaitStop(t, cmd)
		}
		if !status.Exited() || status.ExitStatus() != 0 {
			t.Errorf("stopped at call %d, the process ended with %v", at, status)
		}
		release(t, b, held)
		b.Close()
		tidy(t, dir)
		if t.Failed() {
			t.FailNow()
		}
	}
}

// TestStuckKey: another process keeps the lock of a key, like one that is stopped at the wrong
// moment.
func TestStuckKey(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := claim("k")
	acquire(t, b, c)
	pid, kill := startKeep(t, dir)
	err := short(t, func(ctx context.Context) error {
		_, err := b.Acquire(ctx, claim("k"))
		return err
	}, blames)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		driver.Permanent(err) {
		t.Errorf("acquire: %v; want a passing ErrUnavailable that is DeadlineExceeded", err)
	}
	names(t, "acquire", err, pid)
	// A release counts when it can.
	err = short(t, func(ctx context.Context) error {
		_, err := b.Release(ctx, c)
		return err
	}, blames)
	if !errors.Is(err, driver.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("release: %v; want ErrUnknown that is DeadlineExceeded", err)
	}
	names(t, "release", err, pid)
	// A caller that asks again and again leaves nothing behind.
	for range 1000 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
		if _, err := b.Acquire(ctx, claim("k")); err == nil {
			t.Fatal("acquired while the key was stuck")
		}
		cancel()
	}
	if n := filehold.Queued(b); n > 200 {
		t.Errorf("%d calls that were given up wait for their turn", n)
	}
	kill()
	want(t, "key released meanwhile", acquire(t, b, claim("k")), driver.Held)
}

// TestStuckCallsKeepTheirOrder asks for a key while it is stuck.
func TestStuckCallsKeepTheirOrder(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	resume, err := filehold.KeepKey(dir, "k")
	if err != nil {
		t.Fatal(err)
	}
	c := claim("k")
	calls := []func() (driver.Result, error){
		func() (driver.Result, error) { return b.Acquire(context.Background(), c) },
		func() (driver.Result, error) { return b.Release(context.Background(), c) },
		func() (driver.Result, error) { return b.Release(context.Background(), c) },
	}
	results := make([]chan driver.State, len(calls))
	for i, call := range calls {
		results[i] = make(chan driver.State, 1)
		go func() {
			r, err := call()
			if err != nil {
				t.Error(err)
			}
			results[i] <- r.State
		}()
		eventually(t, "the call waits", func() bool { return filehold.Queued(b) == i+1 })
	}
	resume()
	for i, want := range []driver.State{driver.Held, driver.Held, driver.Lost} {
		if got := <-results[i]; got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
}

// TestCloseWhileStuck closes while a key cannot be had.
func TestCloseWhileStuck(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	w := open(t, dir)
	notices := listen(w)
	first, second := queued("k"), queued("k")
	acquire(t, w, second) // holds it
	acquire(t, b, first)  // waits
	_, kill := startKeep(t, dir)
	hanging := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), claim("k"))
		hanging <- err
	}()
	// A second one is the look at the end of the waiter's presence.
	eventually(t, "the call hangs", func() bool { return filehold.Queued(b) > 0 })
	b.Close()
	if err := <-hanging; !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("a call that hung: %v; want a permanent ErrUnavailable", err)
	}
	kill()
	// What Close left behind makes the key's file anew if it is late.
	eventually(t, "what Close left has ended", func() bool { return filehold.Queued(b) == 0 })
	// It is not a member any more, though it could not clean up: its waiter is skipped.
	third := queued("k")
	acquire(t, w, third)
	want(t, "release", release(t, w, second), driver.Held)
	granted(t, notices, third)
	release(t, w, third)
	w.Close()
	tidy(t, dir)
}

// TestCloseEndsWhatWaitsInside closes while a look that the Backend makes by itself, as a sweep
// does, waits for a key that cannot be had.
func TestCloseEndsWhatWaitsInside(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	resume, err := filehold.KeepKey(dir, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer resume()
	looked := make(chan struct{})
	go func() { filehold.Look(b, "k"); close(looked) }()
	eventually(t, "the look waits", func() bool { return filehold.Kept(b, "k") })
	b.Close()
	select {
	case <-looked:
	case <-time.After(30 * time.Second):
		t.Fatal("the look still waits")
	}
}

// TestCloseKeepsStuckLeases closes a Backend whose key is stuck, before its lease ends.
func TestCloseKeepsStuckLeases(t *testing.T) {
	dir := t.TempDir()
	b, w := open(t, dir), open(t, dir)
	acquire(t, b, claim("k"))
	_, kill := startKeep(t, dir)
	b.Close()
	kill()
	want(t, "another", acquire(t, w, claim("k")), driver.Busy)
}

// leaveRelease has b acquire a key of dir, keeps the key's lock, and gives up waiting for the
// release. resume lets go of the key's lock.
func leaveRelease(t *testing.T, b *filehold.Backend, dir string) (resume func()) {
	t.Helper()
	c := claim("k")
	acquire(t, b, c)
	resume, err := filehold.KeepKey(dir, "k")
	if err != nil {
		t.Fatal(err)
	}
	release := func(ctx context.Context) error {
		_, err := b.Release(ctx, c)
		return err
	}
	sent := func(err error) bool { return !errors.Is(err, driver.ErrUnavailable) }
	if err := short(t, release, sent); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("release: %v; want ErrUnknown", err)
	}
	return resume
}

// TestReleaseLeftBehindCounts stops waiting for a release, and then closes.
func TestReleaseLeftBehindCounts(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	resume := leaveRelease(t, b, dir)
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	resume()
	<-closed
	want(t, "next", acquire(t, open(t, dir), claim("k")), driver.Held)
}

// TestCloseAfterKeyWasGivenBack closes with a release left behind. It gives the key back, and then
// another process takes the key and keeps its lock, so Close cannot look at it any more: what Close
// knew of the key before is gone, and there is no lease to wait for.
func TestCloseAfterKeyWasGivenBack(t *testing.T) {
	dir := t.TempDir()
	taken := make(chan func(), 1)
	var removals atomic.Int32
	filehold.AfterUnlink(t, func(path string) {
		if !strings.Contains(path, "/keys/") || removals.Add(1) > 1 {
			return
		}
		letGo, err := filehold.KeepKey(dir, "k")
		if err != nil {
			t.Error(err)
		}
		taken <- letGo
	})
	b := open(t, dir)
	resume := leaveRelease(t, b, dir)
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	eventually(t, "Close asks for what is left", func() bool { return filehold.Queued(b) == 2 })
	resume()
	<-closed
	(<-taken)()
	eventually(t, "what Close left has ended", func() bool { return filehold.Queued(b) == 0 })
	want(t, "next", acquire(t, open(t, dir), claim("k")), driver.Held)
}

// TestKeyIsWaitedForInTheKernel keeps the lock of a key for long. Those who wait for it leave the
// processor to the process that has it.
func TestKeyIsWaitedForInTheKernel(t *testing.T) {
	tries, waits := filehold.CountFlocks()
	dir := t.TempDir()
	b := open(t, dir)
	resume, err := filehold.KeepKey(dir, "k")
	if err != nil {
		t.Fatal(err)
	}
	tries.Store(0)
	done := make(chan driver.Result)
	go func() { done <- acquire(t, b, claim("k")) }()
	eventually(t, "it waits in the kernel", func() bool { return waits.Load() > 0 })
	resume()
	want(t, "acquired when the lock was free", <-done, driver.Held)
	const most = 4 // each try may overtake those who wait
	if n := tries.Load(); n > most {
		t.Errorf("tried %d times; want %d at most", n, most)
	}
}

// TestCloseLeavesOneWaitForAKey closes a Backend while two keys are stuck, for each of which
// several calls wait.
func TestCloseLeavesOneWaitForAKey(t *testing.T) {
	eventually(t, "no other test's Backend waits", func() bool { return waitersForLocks() == 0 })
	dir := t.TempDir()
	b := open(t, dir)
	var resume []func()
	for _, key := range []string{"k", "k2"} {
		r, err := filehold.KeepKey(dir, key)
		if err != nil {
			t.Fatal(err)
		}
		resume = append(resume, r)
		for range 3 {
			go b.Acquire(context.Background(), claim(key))
		}
	}
	eventually(t, "the calls wait", func() bool { return filehold.Queued(b) == 6 })
	b.Close()
	if n := waitersForLocks(); n > 2 {
		t.Errorf("Close left %d goroutines; its documentation says one for each key", n)
	}
	for _, r := range resume {
		r()
	}
	eventually(t, "nobody waits for a lock that is free", func() bool {
		return waitersForLocks() == 0
	})
}

// waitersForLocks counts goroutines that wait in the kernel for the lock of a key.
func waitersForLocks() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "filehold.(*Backend).await(")
}

// TestKeyRemovedWhileWaitedFor frees a key, and so removes its file, while another Backend waits
// for the lock of that file. What the other then has locked is not the key's file any more.
func TestKeyRemovedWhileWaitedFor(t *testing.T) {
	dir := t.TempDir()
	b, other := open(t, dir), open(t, dir)
	resume, err := filehold.KeepKey(dir, "k")
	if err != nil {
		t.Fatal(err)
	}
	c := claim("k")
	done := make(chan driver.Result)
	go func() { done <- acquire(t, b, c) }()
	eventually(t, "the call waits", func() bool { return filehold.Queued(b) == 1 })
	if err := os.Remove(filehold.KeyFile(b, "k")); err != nil {
		t.Fatal(err)
	}
	resume()
	want(t, "acquired", <-done, driver.Held)
	want(t, "another", acquire(t, other, claim("k")), driver.Busy)
	want(t, "release", release(t, b, c), driver.Held)
}
