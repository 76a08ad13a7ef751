//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// listen returns the notices that b gets.
func listen(b *filehold.Backend) chan driver.Notice {
	notices := make(chan driver.Notice, 10_000)
	b.Notify(func(n driver.Notice) { notices <- n })
	return notices
}

// granted waits for the notice of a grant of the claim.
func granted(t testing.TB, notices <-chan driver.Notice, c driver.Claim) driver.Notice {
	t.Helper()
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	for {
		select {
		case n := <-notices:
			if n.Owner == c.Owner {
				if n.Kind != driver.Granted || n.Key != c.Key || n.Token == 0 {
					t.Fatalf("notice %+v; want a grant of %q", n, c.Key)
				}
				return n
			}
		case <-end.C:
			t.Fatalf("no notice of a grant of %q", c.Key)
		}
	}
}

// members counts the open Backends that the directory knows of.
func members(t testing.TB, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "members"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".") {
			n++
		}
	}
	return n
}

func keyFiles(t testing.TB, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestR2_KilledHolderFreesAtOnce(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	b := open(t, dir)
	notices := listen(b)
	first, second := claim("k"), queued("k")
	token := p.acquire(first).Token
	want(t, "waiter", acquire(t, b, second), driver.Busy)
	p.kill()
	// Long before the TTL, and without asking again.
	if n := granted(t, notices, second); n.Token <= token {
		t.Errorf("token %d after %d", n.Token, token)
	}
	want(t, "dead holder's renewal", renew(t, b, first)[0], driver.Lost)
	want(t, "waiter's renewal", renew(t, b, second)[0], driver.Held)
	want(t, "waiter's release", release(t, b, second), driver.Held)
	b.Close()
	tidy(t, dir)
}

// TestR2_KilledWaitersAreSkipped kills the holder and the waiters behind it, from both ends and all
// at once. The waiter that is left gets the key.
func TestR2_KilledWaitersAreSkipped(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
		dir := t.TempDir()
		b := open(t, dir)
		notices := listen(b)
		line := startAll(t, dir, 3)
		for i, p := range line {
			if r := p.acquire(queued("k")); i > 0 && r.Place != i {
				t.Fatalf("waiter %d is told %+v", i, r)
			}
		}
		c := queued("k")
		if r := acquire(t, b, c); r.Place != 3 {
			t.Fatalf("last waiter is told %+v", r)
		}
		for _, i := range order {
			line[i].cmd.Process.Kill()
		}
		for _, p := range line {
			p.kill()
		}
		granted(t, notices, c)
		want(t, "last waiter", renew(t, b, c)[0], driver.Held)
		b.Close()
	}
}

// TestDeathOfHandedOver kills one holder after the other, each of which got the key by a handoff.
// The next one in the queue notices, even if it began to wait behind a waiter.
func TestDeathOfHandedOver(t *testing.T) {
	dir := t.TempDir()
	line := startAll(t, dir, 5)
	var claims []driver.Claim
	for _, p := range line {
		c := queued("k")
		p.acquire(c)
		claims = append(claims, c)
	}
	for i, p := range line[:4] {
		p.kill()
		granted(t, line[i+1].notices, claims[i+1])
	}
	// In the other direction: a waiter leaves, and the one behind it now notices the death of the
	// one before both.
	dir = t.TempDir()
	a, b, c := start(t, dir), start(t, dir), start(t, dir)
	ca, cb, cc := queued("k"), queued("k"), queued("k")
	a.acquire(ca)
	b.acquire(cb)
	c.acquire(cc)
	want(t, "waiter leaves", b.release(cb), driver.Busy)
	b.do("tick") // it forgets whom it waited behind
	a.kill()
	granted(t, c.notices, cc)
}

// TestDeadLeaveNothing kills a process that holds keys for which nobody waits, while another
// process lives on.
func TestDeadLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	mine := claim("mine")
	acquire(t, b, mine)
	p := start(t, dir)
	var claims []driver.Claim
	for i := range 300 {
		claims = append(claims, claim(fmt.Sprint("key", i)))
	}
	p.do("acquire", claims...)
	if n := keyFiles(t, dir); n != 301 {
		t.Fatalf("%d files of keys; want 301", n)
	}
	p.kill()

	// The next process that comes cleans up, for a second.
	eventually(t, "the dead one's keys are gone after Open", func() bool {
		visit(t, dir)
		return keyFiles(t, dir) == 1 && members(t, dir) == 1
	})

	// If no process comes, the one that is there cleans up.
	p = start(t, dir)
	p.do("acquire", claims...)
	p.kill()
	filehold.Tick(b)
	eventually(t, "the dead one's keys are gone", func() bool {
		return keyFiles(t, dir) == 1 && members(t, dir) == 1
	})
	want(t, "mine", renew(t, b, mine)[0], driver.Held)
	release(t, b, mine)
	b.Close()
	tidy(t, dir)
}

// TestSweepOfAnotherDirectory replaces the directory, and kills a process that holds keys in the
// new one. A Backend of the old directory touches nothing in the new one: neither what a process
// has left there that died before it was a member, nor the pipe that tells of keys to free. The
// next process cleans up.
func TestSweepOfAnotherDirectory(t *testing.T) {
	dir := t.TempDir() + "/locks"
	b := open(t, dir)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir)
	p.do("acquire", claim("k1"), claim("k2"), claim("k3"))
	p.kill()
	waste := filepath.Join(dir, "members", strings.Repeat("0", 32)+".tmp")
	if err := syscall.Mkfifo(waste, 0o600); err != nil {
		t.Fatal(err)
	}
	filehold.Tick(b)
	if _, err := os.Lstat(waste); err != nil || members(t, dir) != 1 || keyFiles(t, dir) != 3 {
		t.Errorf("%v, %d members, %d keys; want that all is as it was", err, members(t, dir),
			keyFiles(t, dir))
	}
	tidy(t, dir)
}

// TestSweepLeavesTheNoteOfWhatItCouldNotFree has a sweep free one of two keys of a process that was
// killed. It must leave the pipe that tells of the other: otherwise no process would look.
func TestSweepLeavesTheNoteOfWhatItCouldNotFree(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	p := start(t, dir)
	p.do("acquire", claim("k"), claim("stays"))
	p.kill()
	stays := filehold.KeyFile(b, "stays")
	heal := filehold.FailUnlink(t, stays)
	filehold.Tick(b)
	if n := members(t, dir); n != 2 {
		t.Errorf("%d members, the dead one among them; want 2", n)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "keys", "*")); len(left) != 1 || err != nil {
		t.Errorf("left of the keys: %q, %v; want %s", left, err, stays)
	}
	heal()
	eventually(t, "all is gone of the dead one", func() bool {
		filehold.Tick(b)
		return keyFiles(t, dir) == 0 && members(t, dir) == 1
	})
}

// TestAbandonedLeaveNothing lets leases and presences of a live process end about which nobody asks
// any more.
func TestAbandonedLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, w := claim("k"), queued("k")
	c.TTL, w.TTL = 50*time.Millisecond, 50*time.Millisecond
	acquire(t, b, c)
	acquire(t, b, w)
	d := claim("other")
	d.TTL = 50 * time.Millisecond
	acquire(t, b, d)
	eventually(t, "the files of the keys are gone", func() bool {
		filehold.Tick(b)
		return keyFiles(t, dir) == 0
	})
	if n := filehold.Tracked(b); n != 0 {
		t.Errorf("%d keys are still known", n)
	}
}

// TestR2_StoppedHolderCostsItsTTL stops a process: it is alive, so only its lease ends.
func TestR2_StoppedHolderCostsItsTTL(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	b := open(t, dir)
	notices := listen(b)
	first, second := claim("k"), queued("k")
	first.TTL = 400 * time.Millisecond
	begun := time.Now()
	token := p.acquire(first).Token
	p.stop()
	r := acquire(t, b, second)
	next := r.Token
	if r.State != driver.Held { // as after a pause of the machine
		next = granted(t, notices, second).Token
	}
	if lasted := time.Since(begun); lasted < first.TTL {
		t.Errorf("a lease of %v has ended after %v", first.TTL, lasted)
	}
	if next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	want(t, "waiter's renewal", renew(t, b, second)[0], driver.Held)
	p.cont()
	want(t, "stopped holder's renewal", p.renew(first), driver.Lost)
	want(t, "stopped holder's release", p.release(first), driver.Lost)
	want(t, "waiter's renewal", renew(t, b, second)[0], driver.Held)
}

// TestStoppedWaiterCostsItsPresence stops a waiter whose turn comes. Its grant ends with its
// presence.
func TestStoppedWaiterCostsItsPresence(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	b := open(t, dir)
	notices := listen(b)
	first, stopped, last := claim("k"), queued("k"), queued("k")
	stopped.TTL = 400 * time.Millisecond
	acquire(t, b, first)
	p.acquire(stopped)
	p.stop()
	acquire(t, b, last)
	want(t, "release", release(t, b, first), driver.Held)
	granted(t, notices, last)
}

// TestInherit kills a process whose child has inherited the pipe that keeps the lock.
func TestInherit(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "stdin")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// The child lives as long as this is open.
	life, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()

	p := start(t, dir, "FILEHOLD_TEST_PIPE="+fifo)
	first, brief := claim("k"), claim("brief")
	brief.TTL = 300 * time.Millisecond
	p.acquire(first)
	p.acquire(brief)
	child := p.do("child").PID
	if child <= 0 {
		t.Fatal("no child")
	}
	b := open(t, dir)
	notices := listen(b)
	second := queued("k")
	want(t, "waiter", acquire(t, b, second), driver.Busy)
	p.kill()
	for range 100 {
		if err := syscall.Kill(child, 0); err != nil {
			t.Fatalf("the child is gone: %v", err)
		}
		want(t, "waiter while the child lives", acquire(t, b, second), driver.Busy)
	}
	// There is nobody to renew what the dead one held.
	eventually(t, "a lease ends though the child lives", func() bool {
		return acquire(t, b, claim("brief")).State == driver.Held
	})
	want(t, "waiter while the child lives", acquire(t, b, second), driver.Busy)
	select {
	case n := <-notices:
		t.Fatalf("notice %+v while the child lives", n)
	default:
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	granted(t, notices, second)
}

// TestReleaseDespiteInheritance releases, and closes, while a child has the files.
func TestReleaseDespiteInheritance(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "stdin")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	life, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	p := start(t, dir, "FILEHOLD_TEST_PIPE="+fifo)
	b := open(t, dir)
	first := claim("k")
	p.acquire(first)
	var children []int
	inherit := func() {
		pid := p.do("child").PID
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
		children = append(children, pid)
	}
	inherit()
	want(t, "release", p.release(first), driver.Held)
	second := claim("k")
	want(t, "next", acquire(t, b, second), driver.Held)
	want(t, "release", release(t, b, second), driver.Held)
	if r := p.do("close"); r.Error != "" {
		t.Fatal(r.Error)
	}
	if n := members(t, dir); n != 1 {
		t.Errorf("%d members after Close; want 1", n)
	}
	// The same where a lease outlives the Close.
	p = start(t, dir, "FILEHOLD_TEST_PIPE="+fifo)
	brief := claim("brief")
	brief.TTL = 200 * time.Millisecond
	p.acquire(brief)
	inherit()
	p.do("close")
	eventually(t, "the closed one is no member any more", func() bool {
		open(t, dir).Close()
		return members(t, dir) == 1
	})
	for _, pid := range children {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("the child is gone: %v", err)
		}
	}
}

// TestNoticeAfterMissedGrant has a waiter miss its turn, wait again with the same claim, and be
// told again.
func TestNoticeAfterMissedGrant(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	notices := listen(b)
	first, w := claim("k"), queued("k")
	for range 3 {
		want(t, "first", acquire(t, a, first), driver.Held)
		want(t, "waiter", acquire(t, b, w), driver.Busy)
		release(t, a, first)
		granted(t, notices, w)
		filehold.Lose(t, a, "k") // its grant has run out
	}
}

// TestNoticeNamesTheClaim has two claims of one process wait for one key of another.
func TestNoticeNamesTheClaim(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	notices := listen(b)
	for range 20 {
		first, x, y := claim("k"), queued("k"), queued("k")
		x.Block, y.Block = 3, 5
		acquire(t, a, first)
		acquire(t, b, x)
		acquire(t, b, y)
		release(t, a, first)
		n := granted(t, notices, x)
		if n.Block != 3 {
			t.Errorf("notice %+v; want a block of 3", n)
		}
		if r := renew(t, a, x)[0]; r.State != driver.Held { // so that a hands over again
			t.Fatalf("%+v", r)
		}
		release(t, a, x)
		if m := granted(t, notices, y); m.Block != 5 || m.Token < n.Token+3 {
			t.Errorf("notice %+v after %+v; want a block of 5 behind it", m, n)
		}
		release(t, b, y)
	}
}

// TestTenThousandKeysWithFewFiles holds far more keys than a process may have open files.
func TestTenThousandKeysWithFewFiles(t *testing.T) {
	t.Parallel() // with the others that wait for processes and disks
	dir := t.TempDir()
	p := start(t, dir, "FILEHOLD_TEST_FEW_FILES=1")
	claims := make([]driver.Claim, 10_000)
	for i := range claims {
		claims[i] = claim(fmt.Sprint("key", i))
	}
	for _, op := range []string{"acquire", "renew", "release"} {
		r := p.do(op, claims...)
		if r.Error != "" || len(r.Results) != len(claims) {
			t.Fatalf("%s: %d results, %s", op, len(r.Results), r.Error)
		}
		for i, result := range r.Results {
			want(t, fmt.Sprint(op, " ", i), result.result(), driver.Held)
		}
		if n := p.do("files").PID; n > 16 {
			t.Errorf("%d files are open after %s", n, op)
		}
	}
	if n := keyFiles(t, dir); n != 0 {
		t.Errorf("%d files of keys are left", n)
	}
}

// TestMessagesMayBeGarbage writes to a member's pipe what is no message.
func TestMessagesMayBeGarbage(t *testing.T) {
	dir := t.TempDir()
	b, c := open(t, dir), open(t, dir)
	notices := listen(b)
	pipe, err := os.OpenFile(filehold.MemberFile(b), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	for i, garbage := range []string{"x", strings.Repeat("hf1g", 500), "hf1",
		strings.Repeat("\x00", 60_000)} {
		if _, err := pipe.WriteString(garbage); err != nil {
			t.Fatal(err)
		}
		// What is cut off together with the garbage is lost; what comes later is not.
		eventually(t, fmt.Sprint("a notice after garbage ", i), func() bool {
			first, second := claim("k"), queued("k")
			want(t, "first", acquire(t, c, first), driver.Held)
			acquire(t, b, second)
			release(t, c, first)
			told := false
			end := time.NewTimer(2 * time.Second) // more than a busy machine takes
			defer end.Stop()
			for done := false; !done && !told; {
				select {
				case n := <-notices:
					told = n.Owner == second.Owner
				case <-end.C:
					done = true
				}
			}
			want(t, "second", acquire(t, b, second), driver.Held)
			release(t, b, second)
			return told
		})
	}
}

// TestContextOfCallEnds calls with a context that has ended.
func TestContextOfCallEnds(t *testing.T) {
	b := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Acquire(ctx, claim("k")); err == nil || driver.Permanent(err) {
		t.Errorf("acquire: %v", err)
	}
}

// TestDeathWithoutDescriptors kills a holder while its waiter can open no file. The waiter gets the
// key as soon as it can open files again, though nothing else happens.
func TestDeathWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	b, holder := open(t, dir), start(t, dir)
	notices := listen(b)
	holder.acquire(claim("k"))
	w := queued("k")
	w.TTL = filehold.Presence
	want(t, "waiter", acquire(t, b, w), driver.Busy)
	failed, heal := filehold.FailOpens(t)
	holder.kill()
	// The first look may come before the death, the second comes with it.
	eventually(t, "the waiter looks again and again", func() bool { return failed.Load() > 2 })
	heal()
	granted(t, notices, w)
}
