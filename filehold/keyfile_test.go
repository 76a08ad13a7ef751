//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// shareable returns a directory for WithSharedDirectory.
func shareable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	return dir
}

// removal stops the first removal of the file of a key until it is told to go on.
type removal struct {
	removals *atomic.Int32
	resume   func()
}

func stopRemoval(t *testing.T) removal {
	goOn := make(chan struct{})
	r := removal{new(atomic.Int32), sync.OnceFunc(func() { close(goOn) })}
	filehold.BeforeUnlink(t, func(path string) {
		if strings.Contains(path, "/keys/") && r.removals.Add(1) == 1 {
			<-goOn
		}
	})
	return r
}

// acquireBehind makes b acquire key behind the removal of its file.
func (r removal) acquireBehind(t *testing.T, b *filehold.Backend, key string) driver.Result {
	t.Helper()
	defer r.resume() // also when the test fails
	eventually(t, "the removal begins", func() bool { return r.removals.Load() > 0 })
	got := make(chan driver.Result)
	go func() {
		result, err := b.Acquire(context.Background(), claim(key))
		if err != nil {
			t.Error(err)
		}
		got <- result
	}()
	eventually(t, "the key's lock is waited for", func() bool { return filehold.Kept(b, key) })
	r.resume()
	return <-got
}

// TestKeyFileWithTwoNames stops a process in a shared directory after it has given the file of a
// key its name, and before it has removed the temporary name. So the file keeps a link when it
// loses its name while another process waits for its lock. That process must not take the file for
// the key's.
func TestKeyFileWithTwoNames(t *testing.T) {
	dir := shareable(t)
	goOn := make(chan struct{})
	var links atomic.Int32 // to the file of the key: the directory's marker is made by a link, too
	filehold.AfterLink(t, func(name string) {
		if strings.Contains(name, "/keys/") && links.Add(1) == 1 {
			<-goOn
		}
	})
	r := stopRemoval(t)
	var bs [4]*filehold.Backend
	for i := range bs {
		bs[i] = open(t, dir, filehold.WithSharedDirectory())
	}
	resume := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(resume) // before they are closed, which waits for a call of the file system
	ctx, done := context.Background(), make(chan struct{}, 2)
	go func() { bs[0].Acquire(ctx, claim("k")); done <- struct{}{} }()
	eventually(t, "the file of the key has its name", func() bool { return links.Load() > 0 })
	// As after a cancelled acquisition: it finds nothing, and removes the empty file.
	go func() { bs[1].Release(ctx, claim("k")); done <- struct{}{} }()
	want(t, "behind the removal", r.acquireBehind(t, bs[2], "k"), driver.Held)
	next := acquire(t, bs[3], claim("k"))
	resume()
	<-done
	<-done
	want(t, "next", next, driver.Busy)
}

// TestBackupByHardLinks copies the directory by hard links (cp -al, rsnapshot) while a key is held,
// so that the file of the key keeps a link when it loses its name while another waits for its lock.
func TestBackupByHardLinks(t *testing.T) {
	dir := t.TempDir()
	r := stopRemoval(t)
	a, b, c := open(t, dir), open(t, dir), open(t, dir)
	held := claim("k")
	acquire(t, a, held)
	if err := os.Link(filehold.KeyFile(a, "k"), t.TempDir()+"/backup"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { a.Release(context.Background(), held); close(done) }()
	want(t, "behind the removal", r.acquireBehind(t, b, "k"), driver.Held)
	<-done
	want(t, "next", acquire(t, c, claim("k")), driver.Busy)
}

// TestFailedFlockLeavesTheKey: a file lock fails for another reason than that it is taken (on Linux
// ENOLCK, if there is no memory for it). That refuses the claim, and takes nothing from the holder.
func TestFailedFlockLeavesTheKey(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	held := claim("k")
	acquire(t, a, held)
	heal := filehold.FailFlock(t)
	_, err := b.Acquire(context.Background(), claim("k"))
	heal()
	if !errors.Is(err, syscall.ENOLCK) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire: %v; want ErrUnavailable and %v", err, syscall.ENOLCK)
	}
	want(t, "second", acquire(t, b, claim("k")), driver.Busy)
	want(t, "renewal", renew(t, a, held)[0], driver.Held)
}
