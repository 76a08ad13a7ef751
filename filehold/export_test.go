//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Lose takes key from its holder, as if its lease had run out. Waiters stay.
func Lose(t testing.TB, b *Backend, key string) {
	done := make(chan error, 1)
	b.core.post(func(t *turn) {
		var buf [2 * keyPlace]byte
		var scratch []byte
		var k keyFile
		err := t.loadKey(&k, key, buf[:])
		if err == nil {
			k.record.holder = nil
			err = t.storeKey(&k, &scratch)
			k.close()
		}
		done <- err
	})
	if err := <-done; err != nil {
		t.Errorf("lose %q: %v", key, err)
	}
}

// Stall takes the mutex of the directory that b has open, as a process that is stopped at the wrong moment does, until
// resume is called.
func Stall(t testing.TB, b *Backend) (resume func()) {
	resume, err := StallDir(b.core.dir.path)
	if err != nil {
		t.Fatal(err)
	}
	return resume
}

// StallDir is Stall for a directory.
func StallDir(dir string) (resume func(), err error) {
	fd, err := openFile(dir+"/"+mutexName, syscall.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	m := mutex{fd: fd}
	if err := m.lock(nil); err != nil {
		return nil, err
	}
	return func() { closeFile(fd) }, nil
}

// Suspicions returns how often b had reason to think that a member which it watches is dead, and found it alive.
func Suspicions(b *Backend) (n int) {
	done := make(chan struct{})
	b.core.post(func(t *turn) {
		for _, w := range t.watches {
			n += w.tries
		}
		close(done)
	})
	<-done
	return n
}

// Queued returns how many jobs wait for the worker.
func Queued(b *Backend) int {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	return len(b.core.jobs)
}

// Tick does at once what is done every now and then, and returns when it is begun.
func Tick(b *Backend) {
	done := make(chan struct{})
	b.core.post(func(*turn) { b.core.turnTick() })
	b.core.post(func(*turn) { close(done) })
	<-done
}

// Tracked returns how many keys b has claims on.
func Tracked(b *Backend) (n int) {
	done := make(chan struct{})
	b.core.post(func(t *turn) { n = len(t.mine); close(done) })
	<-done
	return n
}

// KeyFile returns the path of the file of a key.
func KeyFile(b *Backend, key string) string { return b.core.dir.keys + keyName(key) }

// MemberFile returns the path of the file that says that b is open.
func MemberFile(b *Backend) string { return b.core.member.path }

// Presence is how long a waiter counts as present.
const Presence = presence

// SetOpenPatience sets how long Open waits for the mutex.
func SetOpenPatience(t testing.TB, d time.Duration) {
	old := openPatience
	openPatience = d
	t.Cleanup(func() { openPatience = old })
}

// SetNetworkFS has every directory be on a file system of that name.
func SetNetworkFS(t testing.TB, name string) {
	networkFSSource = func(string) string { return name }
	t.Cleanup(func() { networkFSSource = networkFS })
}

// SetBoot has Open believe that the machine was booted anew. Unless known, one boot cannot be told from the next.
func SetBoot(t testing.TB, boot byte, known bool) {
	bootMarkSource = func() (bootMark, bool) { return bootMark{boot}, known }
	t.Cleanup(func() { bootMarkSource = readBootMark })
}

// OnSync has f called with the content of the fence after each sync of it.
func OnSync(t testing.TB, f func(fence []byte)) {
	sysFsync = func(fd int) error {
		if err := syscall.Fsync(fd); err != nil {
			return err
		}
		content := make([]byte, fencePlace+sealSize)
		if n, err := readAt(fd, content, 0); err == nil && n == len(content) {
			f(content)
		}
		return nil
	}
	t.Cleanup(func() { sysFsync = syscall.Fsync })
}

// FailSync has every sync fail.
func FailSync(t testing.TB) (heal func()) {
	sysFsync = func(int) error { return syscall.EIO }
	heal = func() { sysFsync = syscall.Fsync }
	t.Cleanup(heal)
	return heal
}

// DieAt kills this process before its nth call that changes something in a directory, or, if torn, in the middle of it, if
// it can be cut short. It returns how to get the number of calls so far, and which of them could be cut short.
func DieAt(n int, torn bool) (calls func() (int, []int)) {
	var count atomic.Int64
	var mu sync.Mutex
	var writes []int
	step := func() bool { return count.Add(1) == int64(n) }
	die := func() {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	sysOpen = func(path string, mode int, perm uint32) (int, error) {
		if mode&syscall.O_CREAT != 0 && step() && !torn {
			die()
		}
		return syscall.Open(path, mode, perm)
	}
	sysPwrite = func(fd int, b []byte, offset int64) (int, error) {
		hit := step()
		mu.Lock()
		writes = append(writes, int(count.Load()))
		mu.Unlock()
		if hit {
			if torn {
				syscall.Pwrite(fd, b[:len(b)/2], offset)
			}
			die()
		}
		return syscall.Pwrite(fd, b, offset)
	}
	path := func(call func(string) error) func(string) error {
		return func(path string) error {
			if step() && !torn {
				die()
			}
			return call(path)
		}
	}
	sysUnlink = path(syscall.Unlink)
	sysRename = func(from, to string) error {
		if step() && !torn {
			die()
		}
		return syscall.Rename(from, to)
	}
	mode := func(call func(string, uint32) error) func(string, uint32) error {
		return func(path string, mode uint32) error {
			if step() && !torn {
				die()
			}
			return call(path, mode)
		}
	}
	sysMkdir, sysMkfifo = mode(syscall.Mkdir), mode(syscall.Mkfifo)
	sysFsync = func(fd int) error {
		if step() && !torn {
			die()
		}
		return syscall.Fsync(fd)
	}
	sysFlock = func(fd, how int) error {
		if how != syscall.LOCK_SH|syscall.LOCK_NB && step() && !torn {
			die()
		}
		return syscall.Flock(fd, how)
	}
	return func() (int, []int) {
		mu.Lock()
		defer mu.Unlock()
		return int(count.Load()), writes
	}
}

// FenceNames are the names of files that a directory has while nobody uses it.
var FenceNames = strings.Fields(markerName + " " + mutexName + " " + fenceName + " " + keysName + " " + membersName)
