package filehold

import (
	"context"
	"errors"
	"iter"
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// Backend keeps locks in a directory. Open one with [Open]; one for each process and directory is enough. It is safe for
// concurrent use.
//
// Beside driver.Backend it implements driver.Notifier, driver.Inspector and driver.Identified.
type Backend struct {
	core *core
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.Notifier   = (*Backend)(nil)
	_ driver.Inspector  = (*Backend)(nil)
	_ driver.Identified = (*Backend)(nil)
)

// Open opens the directory dir for locks, and creates it with mode 0700 if it does not exist but its parent does.
// Whatever the spelling of dir, the same directory gives the same locks.
//
// It fails with a [*driver.Error], permanent unless waiting may help, that says what is wrong: dir cannot
// be created; is not a directory; belongs to another user (see [WithSharedDirectory]); can be written to by everybody and is not sticky;
// cannot be written to by us; is on a network file system; holds other files; has a layout that this version
// does not know; is used by processes whose clock is not ours; or the system has no flock. errors.Is finds fs.ErrNotExist,
// fs.ErrPermission and the like where they are the cause. It waits at most ten seconds for a process that keeps
// the directory to itself, and then fails with an error that names it.
//
// An open Backend uses five file descriptors and two goroutines, whatever it holds, and on top of that one of each for
// every process that one of its waiters waits behind. Close it when it is no longer used.
func Open(dir string, options ...Option) (*Backend, error) {
	var cfg config
	for _, o := range options {
		if o == nil {
			return nil, &driver.Error{Node: dir, Permanent: true, Err: errors.New("option nil: leave it out")}
		}
		o.apply(&cfg)
	}
	core, err := openCore(dir, cfg)
	if err != nil {
		return nil, err
	}
	return &Backend{core: core}, nil
}

// Acquire asks once for the claim, as driver.Backend describes. A busy claim with Queue set is queued and present for
// three seconds, or for its TTL if that is shorter.
//
// When ctx ends before the claim was looked at, it fails with ErrUnavailable, and the claim has had no effect;
// the error names the process that keeps the directory to itself, if that is why. When ctx ends while the
// file system works on it, it fails with ErrUnknown. Other failures are ErrUnavailable: the file system's own, permanent
// ones for a claim that is not allowed, a directory that was removed and after Close.
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return b.core.acquire(ctx, claim)
}

// Renew extends each claim that still holds its key, as driver.Backend describes. It fails as [Backend.Acquire] does, for the
// whole batch; what concerns one claim only is in its result. If the directory was removed, every claim is Lost.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	return b.core.renew(ctx, claims)
}

// Release ends a hold or leaves the queue, as driver.Backend describes. It frees the key at once, no matter who has
// inherited what (see [Backend.Inherit]). It fails as [Backend.Acquire] does.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return b.core.release(ctx, claim)
}

// Notify calls f with every grant of a claim that this Backend has queued, until stop is called or the Backend is
// closed. Calls are made one at a time. f must not block, and must call neither the Backend nor stop. stop waits for
// a call that is under way; after it f is not called again. Calling it twice is safe.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	return b.core.notify(f)
}

// List yields every key that is held or waited for and begins with prefix, without its waiters. It does not
// hold up those who lock. It yields an error and stops when ctx ends, after Close, and when the directory cannot
// be read.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return b.core.list(ctx, prefix)
}

// Inspect describes one key with its waiters. It fails as [Backend.List] does.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	return b.core.inspect(ctx, key)
}

// Identity names the directory, as long as the machine runs: it is the same for every way to spell the
// directory. It fails after Close and when the directory was removed.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	return b.core.identity(ctx)
}

// Dir returns the directory's absolute path, without symbolic links.
func (b *Backend) Dir() string { return b.core.path() }

// Inherit returns the files that a child process must inherit if what this Backend holds is not to pass to anybody else before
// the child has ended as well, however this process ends. They are for [os/exec.Cmd.ExtraFiles]. They belong to the Backend:
// do not close them, and start the child before Close.
//
// Without them, a child that is killed together with its parent, or by the parent-death signal, may still run when the
// next holder starts: the kernel closes the files of a dead process before it tells anybody of the death. With
// them the locks of a killed parent last until every process that has the files has ended or closed them, or until their leases
// run out, whichever comes first: there is nobody left to renew them.
//
// Release and Close free what they free no matter who has the files.
func (b *Backend) Inherit() []*os.File { return b.core.inherit() }

// Close ends the use of the directory. Calls that are under way, and all after it, fail with ErrUnavailable; what is queued
// leaves the queue. A key that is still held stays locked until its lease runs out or the process
// ends, since its holder may rely on it; release keys before. If none is held, nothing of this Backend
// is left in the directory. No goroutine is left. Closing twice is safe. The error is always nil.
func (b *Backend) Close() error {
	b.core.close()
	return nil
}
