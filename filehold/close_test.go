//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// regular is a file system that shows only files and directories.
type regular struct{ fs.FS }

func (r regular) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.FS, name)
	var kept []fs.DirEntry
	for _, e := range entries {
		if e.IsDir() || e.Type().IsRegular() {
			kept = append(kept, e)
		}
	}
	return kept, err
}

func (r regular) Open(name string) (fs.File, error) { return r.FS.Open(path.Clean(name)) }

// goroutines counts those that run code of the package.
func goroutines() int {
	buf := make([]byte, 1<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "/filehold.") {
			n++
		}
	}
	return n
}

// openFiles returns what each descriptor of this process is.
func openFiles(t *testing.T) map[string]os.FileInfo {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]os.FileInfo)
	for _, e := range entries {
		// The descriptor that the list was read from is closed by now.
		if info, err := os.Stat("/dev/fd/" + e.Name()); err == nil {
			files[e.Name()] = info
		}
	}
	return files
}

// opened returns the descriptors of after that were not in before. Those that were closed do not
// matter: a Backend that another test has closed keeps files open for as long as its leases last.
func opened(before, after map[string]os.FileInfo) (files []string) {
	for name, info := range after {
		if was := before[name]; was == nil || !os.SameFile(was, info) {
			files = append(files, name)
		}
	}
	return files
}

func TestCloseLeavesNothing(t *testing.T) {
	// One that was closed before its lease ends keeps files open until then.
	lingers, brief := open(t, t.TempDir()), claim("k")
	brief.TTL = 300 * time.Millisecond
	acquire(t, lingers, brief)
	kept, err := os.Stat(filehold.MemberFile(lingers))
	if err != nil {
		t.Fatal(err)
	}
	lingers.Close()

	dir := t.TempDir()
	other := open(t, dir)
	held := claim("k")
	acquire(t, other, held)
	const running = 2 // what the other one has; what answers its call may be on its way out
	eventually(t, "the goroutines of the other one run", func() bool {
		return goroutines() == running
	})
	files := openFiles(t)
	eventually(t, "the lease of one that was closed before has ended", func() bool {
		for _, info := range openFiles(t) {
			if os.SameFile(info, kept) {
				return false
			}
		}
		return true
	})
	for range 3 {
		b := open(t, dir)
		notices := listen(b)
		w, c := queued("k"), claim("mine")
		acquire(t, b, w) // watches the other
		acquire(t, b, c)
		release(t, b, c)
		eventually(t, "its goroutines run", func() bool { return goroutines() > running })
		for range 2 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		// They have been waited for, but may still be ending.
		eventually(t, "no goroutine is left", func() bool { return goroutines() == running })
		if left := opened(files, openFiles(t)); len(left) > 0 {
			t.Fatalf("open files after Close: descriptors %v", left)
		}
		if n := members(t, dir); n != 1 {
			t.Errorf("%d members after Close; want 1", n)
		}
		if e, err := other.Inspect(context.Background(), "k"); err != nil || len(e.Waiters) != 0 {
			t.Errorf("the queue holds %+v, %v after Close; want nobody", e.Waiters, err)
		}
		ctx := context.Background()
		_, err1 := b.Acquire(ctx, c)
		_, err2 := b.Renew(ctx, []driver.Claim{c})
		_, err3 := b.Release(ctx, c)
		_, err4 := b.Inspect(ctx, "k")
		_, err5 := b.Identity(ctx)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
				t.Errorf("after Close: %v; want a permanent ErrUnavailable", err)
			}
		}
		release(t, other, held)
		acquire(t, other, held)
		select {
		case n := <-notices:
			t.Errorf("notice %+v after Close", n)
		default:
		}
	}
}

// TestCloseKeepsLeases closes a Backend while its lock is still relied on. The key becomes free
// when the lease ends, and not before.
func TestCloseKeepsLeases(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	notices := listen(b)
	short, long := claim("short"), claim("long")
	short.TTL = 300 * time.Millisecond
	begun := time.Now()
	acquire(t, a, short)
	acquire(t, a, long)
	a.Close()
	w, busy := queued("short"), queued("long")
	if acquire(t, b, w).State != driver.Held { // as after a pause of the machine
		granted(t, notices, w)
	}
	if lasted := time.Since(begun); lasted < short.TTL {
		t.Errorf("a lease of %v has ended after %v", short.TTL, lasted)
	}
	want(t, "a longer lease", acquire(t, b, busy), driver.Busy)

	dir = t.TempDir()
	a, _ = open(t, dir), open(t, dir)
	acquire(t, a, short)
	a.Close()
	eventually(t, "the member leaves when its last lease has ended", func() bool {
		c := open(t, dir)
		defer c.Close()
		return members(t, dir) == 2
	})
}

// TestProcessEndFreesAfterClose ends a process whose Backend was closed before its lease ended.
func TestProcessEndFreesAfterClose(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.acquire(claim("k"))
	p.do("close")
	b := open(t, dir)
	notices := listen(b)
	w := queued("k")
	want(t, "waiter while the process lives", acquire(t, b, w), driver.Busy)
	p.kill()
	granted(t, notices, w)
}
