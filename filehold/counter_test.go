//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// draw returns the token of a grant of key "k", which is released.
func draw(t *testing.T, b *filehold.Backend) driver.Token {
	t.Helper()
	c := claim("k")
	r := acquire(t, b, c)
	want(t, "acquire", r, driver.Held)
	want(t, "release", release(t, b, c), driver.Held)
	return r.Token
}

// drawsNothing checks that b refuses to grant key "k", because the counter is damaged.
func drawsNothing(t *testing.T, b *filehold.Backend, what string) {
	t.Helper()
	r, err := b.Acquire(context.Background(), claim("k"))
	if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("%s: %+v, %v; want a permanent error", what, r, err)
	}
}

func counterOf(dir string) string { return filepath.Join(dir, "fence", "counter") }

// TestCounterMovedAside gives the counter another name. The processes that have it open keep it
// open.
func TestCounterMovedAside(t *testing.T) {
	dir, aside := t.TempDir(), t.TempDir()
	a := open(t, dir)
	draw(t, a)
	if err := os.Link(counterOf(dir), aside+"/counter"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(counterOf(dir)); err != nil {
		t.Fatal(err)
	}
	first := draw(t, open(t, dir))
	if second := draw(t, a); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

// TestCounterEmptied empties the counter at its full length, while it is in use. No process counts
// from zero, and the next one that opens the directory mends it.
func TestCounterEmptied(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	first := draw(t, a)
	info, err := os.Stat(counterOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, info.Size()} {
		if err := os.Truncate(counterOf(dir), size); err != nil {
			t.Fatal(err)
		}
	}
	drawsNothing(t, a, "who has drawn")
	drawsNothing(t, b, "who has drawn nothing")
	for _, b := range []*filehold.Backend{open(t, dir), a, b} {
		token := draw(t, b)
		if token <= first {
			t.Errorf("token %d after %d", token, first)
		}
		first = token
	}
}

// TestOlderFencePutBack puts back an older copy of the fence under a process that has drawn tokens
// since. The process does not grant a token twice.
func TestOlderFencePutBack(t *testing.T) {
	dir, backup := t.TempDir(), t.TempDir()
	a := open(t, dir)
	draw(t, a)
	fence := filepath.Join(dir, "fence")
	if err := os.CopyFS(filepath.Join(backup, "fence"), os.DirFS(fence)); err != nil {
		t.Fatal(err)
	}
	last := draw(t, a)
	if err := os.RemoveAll(fence); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(backup, "fence"), fence); err != nil {
		t.Fatal(err)
	}
	drawsNothing(t, a, "with an older counter")
	// As the error says.
	if err := os.Remove(counterOf(dir)); err != nil {
		t.Fatal(err)
	}
	if token := draw(t, a); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
}

// TestCounterCutShortAtOpen cuts the counter short right after it was mapped, by a process that
// opens the directory. That is an error, and not the end of the process.
func TestCounterCutShortAtOpen(t *testing.T) {
	dir := t.TempDir()
	filehold.AfterMap(t, func() {
		if err := os.Truncate(counterOf(dir), 0); err != nil {
			t.Error(err)
		}
	})
	b, err := filehold.Open(dir)
	if err == nil {
		b.Close()
	}
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("open: %v; want ErrUnavailable", err)
	}
}

// TestUnsyncedDirectoryIsSynced: the process that makes the directory fails, or dies, before the
// names in it are durable. The next process makes them durable, before it grants a token that a
// power loss could bring up again.
func TestUnsyncedDirectoryIsSynced(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "locks")
	for _, which := range []string{dir, parent} {
		synced, fail := false, true
		filehold.InsteadOfSync(t, which, func() error {
			if fail {
				return syscall.EIO
			}
			synced = true
			return nil
		})
		if b, err := filehold.Open(dir); !errors.Is(err, syscall.EIO) {
			if err == nil {
				b.Close()
			}
			t.Fatalf("open: %v; want %v", err, syscall.EIO)
		}
		fail = false
		draw(t, open(t, dir))
		if !synced {
			t.Errorf("a token was granted, and what is in %s was never made durable", which)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFenceNamedByHand writes the bound of the tokens in another way, for example with a leading
// zero.
func TestFenceNamedByHand(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	fence := filepath.Join(dir, "fence")
	if err := os.RemoveAll(fence); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(fence, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(fence, "01"), "")
	if b, err := filehold.Open(dir); !errors.Is(err, fs.ErrNotExist) || !driver.Permanent(err) {
		if err == nil {
			b.Close()
		}
		t.Errorf("open: %v; want a permanent error", err)
	}
	if err := os.Rename(filepath.Join(fence, "01"), filepath.Join(fence, "5000")); err != nil {
		t.Fatal(err)
	}
	if token := draw(t, open(t, dir)); token <= 5000 {
		t.Errorf("token %d, below a bound of 5000", token)
	}
}
