//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"os"
	ossignal "os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func lockFile(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX) }

// Lose takes key from its holders, as if their leases had ended. Waiters stay.
func Lose(t testing.TB, b *Backend, key string) {
	k, err := b.dir.lockKey(keyName(key), false, "", lockFile)
	if err == nil {
		defer k.close()
		err = k.load(new([]byte))
	}
	if err == nil {
		k.record.holders = nil
		err = k.store()
	}
	if err != nil {
		t.Errorf("lose %q: %v", key, err)
	}
}

// Hang makes b hang, as in a call of the file system that does not return, until resume is called
// or b is closed.
func Hang(b *Backend) (resume func()) {
	b.work.Lock()
	done := make(chan struct{})
	go func() {
		defer b.work.Unlock()
		select {
		case <-done:
		case <-b.ctx.Done():
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// KeepKey locks a key in the directory, as a process does that is stopped at the wrong moment,
// until resume is called.
func KeepKey(dir, key string) (resume func(), err error) {
	d := &directory{keys: dir + "/" + keysName + "/", fileMode: 0o600}
	k, err := d.lockKey(keyName(key), true, "", lockFile)
	if err != nil {
		return nil, err
	}
	return k.close, nil
}

// Queued returns how many jobs wait to be done.
func Queued(b *Backend) (n int) {
	b.lanes.mu.Lock()
	defer b.lanes.mu.Unlock()
	for _, l := range b.lanes.byName {
		n += len(l.jobs)
	}
	return n
}

// Kept reports whether b waits for the lock of a key.
func Kept(b *Backend, key string) bool {
	b.lanes.mu.Lock()
	defer b.lanes.mu.Unlock()
	l := b.lanes.byName[keyName(key)]
	return l != nil && l.kept != nil
}

// Tick does at once what a Backend does from time to time.
func Tick(b *Backend) { b.tick() }

// Tracked returns how many keys b has claims on.
func Tracked(b *Backend) int {
	b.work.Lock()
	defer b.work.Unlock()
	return len(b.mine)
}

// KeyFile returns the path of the file of a key.
func KeyFile(b *Backend, key string) string { return b.dir.keys + keyName(key) }

// MemberFile returns the path of the file that says that b is open.
func MemberFile(b *Backend) string { return b.member.path }

// Presence is how long a waiter counts as present.
const Presence = presence

// SetNetworkFS makes every directory appear to be on a file system of that name.
func SetNetworkFS(t testing.TB, name string) {
	networkFSSource = func(string) string { return name }
	t.Cleanup(func() { networkFSSource = networkFS })
}

// SetManyKernels makes every directory appear to be on a file system that machines may share.
func SetManyKernels(t testing.TB) {
	oneKernelSource = func(string) bool { return false }
	t.Cleanup(func() { oneKernelSource = oneKernel })
}

// SetBoot makes Open believe that the machine was booted anew. If known is false, one boot cannot
// be told from the next.
func SetBoot(t testing.TB, boot byte, known bool) {
	bootMarkSource = func() bootMark {
		if !known {
			return bootMark{}
		}
		return bootMark{boot + 1}
	}
	t.Cleanup(func() { bootMarkSource = readBootMark })
}

// SetClock makes Open believe that it has another clock, or, with 0, that its clock is not known.
func SetClock(t testing.TB, mark byte) {
	clockMarkSource = func(string) clockMark { return clockMark{mark} }
	t.Cleanup(func() { clockMarkSource = readClockMark })
}

// OnSync calls f after each sync of something in dir/fence. fd is what was synced.
func OnSync(t testing.TB, f func(fd int)) {
	replaceFsync(t, func(fd int) error {
		if err := syscall.Fsync(fd); err != nil {
			return err
		}
		f(fd)
		return nil
	})
}

// FailSync makes every sync fail.
func FailSync(t testing.TB) (heal func()) {
	replaceFsync(t, func(int) error { return syscall.EIO })
	return func() { syncs.Store(nil) }
}

// DieAt kills this process before its nth call that changes something in a directory, or, if torn,
// in the middle of it, if it can be cut short. It returns how to get the number of calls so far,
// and which of them could be cut short.
func DieAt(n int, torn bool) (calls func() (int, []int)) {
	return signalAt(n, torn,
		syscall.SIGKILL)
}

// StopAt is DieAt, but stops this process, until it is continued.
func StopAt(n int) { signalAt(n, false, syscall.SIGSTOP) }

func signalAt(n int, torn bool, signal syscall.Signal) (calls func() (int, []int)) {
	var count atomic.Int64
	var mu sync.Mutex
	var writes []int
	step := func() bool { return count.Add(1) == int64(n) }
	die := func() {
		// The signal may go to another thread first, and this one run on for a while.
		continued := make(chan os.Signal, 1)
		ossignal.Notify(continued, syscall.SIGCONT)
		defer ossignal.Stop(continued)
		syscall.Kill(os.Getpid(), signal)
		<-continued
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
	sysLink = func(from, to string) error {
		if step() && !torn {
			die()
		}
		return syscall.Link(from, to)
	}
	sysMkdir, sysMkfifo = mode(syscall.Mkdir), mode(syscall.Mkfifo)
	sysFtruncate = func(fd int, size int64) error {
		if step() && !torn {
			die()
		}
		return syscall.Ftruncate(fd, size)
	}
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
var FenceNames = strings.Fields(markerName + " " + fenceName + " " + keysName + " " + membersName)

// Look makes b put a key in order, as it does when something has changed, and returns when that is
// done.
func Look(b *Backend, key string) {
	b.lanes.do(context.Background(), &job{kind: jobLook, name: keyName(key)})
}

var flockTries, flockWaits atomic.Int64

var flockFails atomic.Bool

// Counted from the start, because what an earlier test has left behind still uses it when a later
// one begins.
func init() {
	sysFlock = func(fd, how int) error {
		if how == syscall.LOCK_EX|syscall.LOCK_NB && flockFails.Load() {
			return syscall.ENOLCK
		}
		switch how {
		case syscall.LOCK_EX:
			flockWaits.Add(1)
		case syscall.LOCK_EX | syscall.LOCK_NB:
			flockTries.Add(1)
		}
		return syscall.Flock(fd, how)
	}
}

// CountFlocks counts from now on how often a file lock is tried for, and how often the kernel is
// asked to wait for one.
func CountFlocks() (tries, waits *atomic.Int64) {
	flockTries.Store(0)
	flockWaits.Store(0)
	return &flockTries, &flockWaits
}

// StopAtNextWrite stops this process for good, with SIGSTOP, before it next writes to a file of the
// directory, which is under the mutex.
func StopAtNextWrite() {
	sysPwrite = func(int, []byte, int64) (int, error) {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // the signal may go to another thread first, and this one run on for a while
	}
}

var messagesLost atomic.Bool

func init() {
	sysWrite = func(fd int, b []byte) (int, error) {
		if messagesLost.Load() {
			return 0, syscall.EAGAIN
		}
		return syscall.Write(fd, b)
	}
}

// LoseMessages loses the messages between members, as when their pipes are full.
func LoseMessages() (heal func()) {
	messagesLost.Store(true)
	return func() { messagesLost.Store(false) }
}

// FailFlock makes attempts at file locks fail, as when the kernel has no memory for them.
func FailFlock(t testing.TB) (heal func()) {
	flockFails.Store(true)
	heal = func() { flockFails.Store(false) }
	t.Cleanup(heal)
	return heal
}

// AfterLink calls f with each second name that a file was given. Call it before Open.
func AfterLink(t testing.TB, f func(name string)) {
	t.Cleanup(func() { linked.Store(nil) })
	linked.Store(&f)
}

// unlinks, renames and syncs stand for the system calls of those names, unless they are nil; linked
// and mapped are called after those. What runs beside a test calls them while it changes them: the
// timer of a lease, or what an earlier test has left behind, such as a Backend whose lease lasts.
var (
	unlinks atomic.Pointer[func(path string) error]
	renames atomic.Pointer[func(from, to string) error]
	syncs   atomic.Pointer[func(fd int) error]
	linked  atomic.Pointer[func(name string)]
	mapped  atomic.Pointer[func()]
)

func init() {
	sysFsync = func(fd int) error {
		if f := syncs.Load(); f != nil {
			return (*f)(fd)
		}
		return syscall.Fsync(fd)
	}
	sysLink = func(from, to string) error {
		err := syscall.Link(from, to)
		if f := linked.Load(); f != nil {
			(*f)(to)
		}
		return err
	}
	sysMmap = func(fd int, offset int64, length, prot, flags int) ([]byte, error) {
		b, err := syscall.Mmap(fd, offset, length, prot, flags)
		if f := mapped.Load(); f != nil {
			(*f)()
		}
		return b, err
	}
	sysUnlink = func(path string) error {
		if f := unlinks.Load(); f != nil {
			return (*f)(path)
		}
		return syscall.Unlink(path)
	}
	sysRename = func(from, to string) error {
		if f := renames.Load(); f != nil {
			return (*f)(from, to)
		}
		return syscall.Rename(from, to)
	}
}

func replaceFsync(t testing.TB, f func(fd int) error) {
	syncs.Store(&f)
	t.Cleanup(func() { syncs.Store(nil) })
}

func replaceUnlink(t testing.TB, f func(path string) error) {
	unlinks.Store(&f)
	t.Cleanup(func() { unlinks.Store(nil) })
}

// FailUnlink keeps path from being removed, as after an error of the disk.
func FailUnlink(t testing.TB, path string) (heal func()) {
	replaceUnlink(t, func(removed string) error {
		if removed == path {
			return syscall.EIO
		}
		return syscall.Unlink(removed)
	})
	return func() { unlinks.Store(nil) }
}

// BeforeUnlink calls f with each path before it is removed.
func BeforeUnlink(t testing.TB, f func(path string)) {
	replaceUnlink(t, func(path string) error {
		f(path)
		return syscall.Unlink(path)
	})
}

// BeforeRename calls f with each name before a file is given it in place of another.
func BeforeRename(t testing.TB, f func(to string)) {
	rename := func(from, to string) error {
		f(to)
		return syscall.Rename(from, to)
	}
	renames.Store(&rename)
	t.Cleanup(func() { renames.Store(nil) })
}

// AfterUnlink calls f with each path that was removed.
func AfterUnlink(t testing.TB, f func(path string)) {
	replaceUnlink(t, func(path string) error {
		err := syscall.Unlink(path)
		f(path)
		return err
	})
}

// InsteadOfSync calls f instead of the syncs of the directory dir.
func InsteadOfSync(t testing.TB, dir string, f func() error) {
	replaceFsync(t, func(fd int) error {
		st, err := statOpen(fd)
		if err != nil {
			return err
		}
		if id, err := identify(dir); err == nil && id == idOf(&st) {
			return f()
		}
		return syscall.Fsync(fd)
	})
}

// AfterMap calls f each time after the counter of the tokens was mapped.
func AfterMap(t testing.TB, f func()) {
	t.Cleanup(func() { mapped.Store(nil) })
	mapped.Store(&f)
}

var (
	opensFail atomic.Bool
	openFails atomic.Int64
)

func init() {
	sysOpen = func(path string, mode int, perm uint32) (int, error) {
		if opensFail.Load() {
			openFails.Add(1)
			return -1, syscall.EMFILE
		}
		if f := creates.Load(); f != nil && mode&syscall.O_CREAT != 0 {
			(*f)(path)
		}
		return syscall.Open(path, mode, perm)
	}
}

// FailOpens makes every file fail to open, as when the process has no descriptor left. failed
// counts them.
func FailOpens(t testing.TB) (failed *atomic.Int64, heal func()) {
	openFails.Store(0)
	opensFail.Store(true)
	heal = func() { opensFail.Store(false) }
	t.Cleanup(heal)
	return &openFails, heal
}

// creates and makes are called before a file is made, and after a named pipe or a directory was,
// unless they are nil.
var creates, makes atomic.Pointer[func(path string)]

func init() {
	hook := func(call func(string, uint32) error) func(string, uint32) error {
		return func(path string, mode uint32) error {
			err := call(path, mode)
			if f := makes.Load(); f != nil {
				(*f)(path)
			}
			return err
		}
	}
	sysMkdir = hook(syscall.Mkdir)
	sysMkfifo = hook(func(path string, mode uint32) error {
		if err := syscall.Errno(pipeFails.Load()); err != 0 {
			return err
		}
		return syscall.Mkfifo(path, mode)
	})
}

var pipeFails atomic.Uintptr // the error of mkfifo; 0: none

// FailMkfifo makes every named pipe fail with err.
func FailMkfifo(t testing.TB, err syscall.Errno) (heal func()) {
	pipeFails.Store(uintptr(err))
	heal = func() { pipeFails.Store(0) }
	t.Cleanup(heal)
	return heal
}

// AfterMake calls f with the path of each named pipe and each directory that was made.
func AfterMake(t testing.TB, f func(path string)) {
	makes.Store(&f)
	t.Cleanup(func() { makes.Store(nil) })
}
