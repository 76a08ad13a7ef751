//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// TestDamagedKeyDoesNotEndSweeps damages the file of one key. What dead processes have left behind
// is still cleaned up.
func TestDamagedKeyDoesNotEndSweeps(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	open(t, dir) // so that what the damaged file says may be in force
	write(t, filehold.KeyFile(b, "damaged"), string(make([]byte, 4096)))
	for range 3 {
		p := start(t, dir)
		for i := range 20 {
			p.do("acquire", claim(fmt.Sprint("key", i)))
		}
		p.kill()
	}
	eventually(t, "the damaged file is all that is left", func() bool {
		filehold.Tick(b)
		return keyFiles(t, dir) == 1 && members(t, dir) == 2
	})
}

// TestSweepSparesWhoHasJustCome: one process looks for what was left by processes that died before
// they were members, while another process comes. When the first one removes what it has found, the
// other is a member, and makes the counter of the tokens.
func TestSweepSparesWhoHasJustCome(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sweeper := open(t, dir)
	filehold.SetBoot(t, 7, true) // so that a new counter is made
	var made, removed, renamed atomic.Bool
	pipe, join := make(chan string), make(chan struct{})
	filehold.AfterMake(t, func(path string) {
		if strings.HasPrefix(path, dir+"/members/") && made.CompareAndSwap(false, true) {
			pipe <- path
			<-join
		}
	})
	opened := make(chan error)
	go func() {
		b, err := filehold.Open(dir)
		if err == nil {
			b.Close()
		}
		opened <- err
	}()
	left := <-pipe
	found, remove, swept := make(chan struct{}), make(chan struct{}), make(chan struct{})
	filehold.BeforeUnlink(t, func(path string) {
		if path == left && removed.CompareAndSwap(false, true) {
			close(found)
			<-remove
		}
	})
	go func() {
		filehold.Tick(sweeper)
		close(swept)
	}()
	<-found
	filehold.BeforeRename(t, func(to string) {
		if to == dir+"/fence/counter" && renamed.CompareAndSwap(false, true) {
			close(remove)
			<-swept
		}
	})
	close(join)
	if err := <-opened; err != nil {
		t.Errorf("open: %v", err)
	}
}

// TestKeysRemoved removes the directory of the keys when it is empty, as cleaners of temporary
// directories do.
func TestKeysRemoved(t *testing.T) {
	for name, options := range map[string][]filehold.Option{"own": nil,
		"shared": {filehold.WithSharedDirectory()}} {
		t.Run(name, func(t *testing.T) {
			dir := shareable(t)
			a, b := open(t, dir, options...), open(t, dir, options...)
			keys := filepath.Join(dir, "keys")
			before, err := os.Stat(keys)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(keys); err != nil {
				t.Fatal(err)
			}
			want(t, "first", acquire(t, a, claim("k")), driver.Held)
			want(t, "second", acquire(t, b, claim("k")), driver.Busy)
			if after, err := os.Stat(keys); err != nil || after.Mode() != before.Mode() {
				t.Errorf("keys: %v, %v; want the mode %v", after, err, before.Mode())
			}
		})
	}
}

// TestKeysRemovedAreNone asks for the keys when their directory is removed, as it may be when it is
// empty: there are none. If everything is removed, or replaced by another directory, that is an
// error.
func TestKeysRemovedAreNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	b := open(t, dir)
	start(t, dir).kill()
	if err := os.Remove(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for e, err := range b.List(ctx, "") {
		t.Errorf("listed: %+v, %v; want nothing", e, err)
	}
	if e, err := b.Inspect(ctx, "k"); err != nil || e.Key != "k" || e.Holder.Owner != "" {
		t.Errorf("inspect: %+v, %v; want nobody", e, err)
	}
	filehold.Tick(b)
	if n := members(t, dir); n != 1 {
		t.Errorf("%d members, a dead one among them; want 1", n)
	}

	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"removed", "replaced"} {
		if what == "replaced" {
			acquire(t, open(t, dir), claim("k"))
		}
		failed := false
		for e, err := range b.List(ctx, "") {
			failed = err != nil
			if e.Key != "" {
				t.Errorf("%s: listed %+v", what, e)
			}
		}
		if _, err := b.Inspect(ctx, "k"); err == nil || !failed {
			t.Errorf("%s: inspect: %v, list fails: %v; want both to fail", what, err, failed)
		}
	}
}

// TestDamagedKeyHidesNoOther damages the files of two keys; one of them is very long, and takes no
// space. All others are listed, and no process dies of the two.
func TestDamagedKeyHidesNoOther(t *testing.T) {
	b := open(t, t.TempDir())
	for i := range 6 {
		acquire(t, b, claim(fmt.Sprint("key", i)))
	}
	write(t, filehold.KeyFile(b, "damaged"), string(make([]byte, 4096)))
	write(t, filehold.KeyFile(b, "long"), "")
	if err := os.Truncate(filehold.KeyFile(b, "long"), 1<<40); err != nil {
		t.Fatal(err)
	}
	open(t, b.Dir())
	keys, failures := 0, 0
	for entry, err := range b.List(context.Background(), "") {
		if err != nil {
			failures++
		} else if entry.Key != "" {
			keys++
		}
	}
	if keys != 6 || failures != 1 {
		t.Errorf("%d keys are listed, and %d failures; want 6 and 1", keys, failures)
	}
	for _, key := range []string{"damaged", "long"} {
		if _, err := b.Acquire(context.Background(), claim(key)); err == nil ||
			!strings.Contains(err.Error(), filehold.KeyFile(b, key)) {
			t.Errorf("acquire %q: %v; want an error that names its file", key, err)
		}
	}
}
