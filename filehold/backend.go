//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Backend keeps locks in a directory. Open one with [Open]; one for each process and directory is
// enough. It is safe for concurrent use.
//
// Beside driver.Backend it implements driver.Notifier, driver.Inspector, driver.Identifier and
// driver.Sharer.
type Backend struct {
	dir     *directory
	member  *member
	notices notices
	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	helpers sync.WaitGroup // goroutines that Close waits for
	closed  sync.Once
	found   chan struct{} // has an item when keepHouse should clean up after dead members

	lanes lanes

	work    sync.Mutex // protects what follows; its owner never waits for another process
	tokens  tokens
	mine    map[string]*claims // by the name of the key's file
	watches map[memberID]*watch
	buf     []byte
	gone    error // set once the directory is lost
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.Notifier   = (*Backend)(nil)
	_ driver.Inspector  = (*Backend)(nil)
	_ driver.Identifier = (*Backend)(nil)
	_ driver.Sharer     = (*Backend)(nil)
)

// Open opens the directory dir for locks, and creates it with mode 0700 if it does not exist but
// its parent does. Whatever the spelling of dir, the same directory gives the same locks.
//
// It fails with a [*driver.Error] that says what is wrong. The error is permanent unless waiting
// may help. Open refuses dir if
//   - it cannot create dir, or dir is not a directory;
//   - dir belongs to another user (see [WithSharedDirectory]);
//   - everybody can write to dir and it is not sticky, or this process cannot write to it;
//   - dir is on a network file system, or the system has no flock;
//   - its file system has no named pipes, or no hard links;
//   - dir has other files, or a layout that this version does not know;
//   - processes with another clock use dir;
//   - an option is nil (ErrInvalid).
//
// errors.Is finds fs.ErrNotExist, fs.ErrPermission and the like where they are the cause. Open
// waits for no other process. For up to a second it cleans up after processes that died.
//
// An open Backend uses two file descriptors and two goroutines, whatever it holds. It uses one
// more of each for every process that one of its waiters waits behind, and for every key that a
// call works on or whose file another process keeps locked. The first waiter for a shared key waits
// behind all processes that share it. Close it when it is no longer used.
func Open(dir string, options ...Option) (*Backend, error) {
	cfg, err := configure(dir, options)
	if err != nil {
		return nil, err
	}
	d, err := openDirectory(dir, cfg)
	if err != nil {
		return nil, err
	}
	m, err := d.join()
	if err != nil {
		return nil, err
	}
	b := &Backend{dir: d, member: m, tokens: tokens{dir: d, temporary: m.temporary()},
		mine: make(map[string]*claims), watches: make(map[memberID]*watch),
		found: make(chan struct{}, 1)}
	b.lanes = lanes{dir: d, serve: b.serve, byName: make(map[string]*lane)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	// The check comes after joining. So of two members with different clocks, at least one sees the
	// other.
	if err = d.checkClock(m.id); err == nil && !d.known {
		err = d.mark(m.temporary())
	}
	if err == nil {
		b.tokens.counter, err = d.openCounter(m.temporary(), false)
	}
	if err == nil {
		err = d.topUp(b.tokens.counter)
	}
	if err != nil {
		b.cancel()
		m.remove()
		d.leave(m)
		return nil, b.dir.wrap(err)
	}
	b.helpers.Go(func() { m.receive(b.lanes.look) })
	b.helpers.Go(b.keepHouse)
	ctx, cancel := context.WithTimeout(context.Background(), firstSweep)
	defer cancel()
	b.sweep(ctx, rollOfNewcomer)
	return b, nil
}

// Acquire asks once for the claim, as driver.Backend describes. A busy claim with Queue set is
// queued and present for three seconds, or for its TTL if that is shorter.
//
// If ctx ends before the Backend has looked at the claim, Acquire fails with ErrUnavailable and the
// claim has no effect. The error names the process that keeps the key's file locked, if that is the
// cause. If ctx ends while the file system works on the claim, Acquire fails with ErrUnknown. A
// claim that is not allowed is ErrInvalid. Other failures of the file system are ErrUnavailable. A
// removed directory and a closed Backend are permanent errors.
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := b.validate(&claim); err != nil {
		return driver.Result{}, err
	}
	return b.one(ctx, jobAcquire, claim)
}

// Renew extends each claim that still holds its key, as driver.Backend describes. It fails as
// [Backend.Acquire] does if nothing is known of any claim. An error that concerns some claims only
// is in their results. If the directory was removed, every claim is Lost. If another process keeps
// the file of one key locked for more than some milliseconds, that claim's result has the error,
// and the other claims do not wait for it.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	results := make([]driver.Result, len(claims))
	jobs := make([]*job, len(claims))
	var valid []*job
	for i := range claims {
		jobs[i] = &job{kind: jobRenew, name: keyName(claims[i].Key), claim: claims[i]}
		if err := b.validate(&claims[i]); err != nil {
			jobs[i].result.Err = err
		} else {
			valid = append(valid, jobs[i])
		}
	}
	if err := b.lanes.do(ctx, valid...); err != nil {
		return nil, err
	}
	known := len(claims) == 0
	for i, j := range jobs {
		results[i] = j.result
		known = known || j.result.Err == nil
	}
	if !known && ctx.Err() != nil {
		return nil, results[0].Err
	}
	return results, nil
}

// Release frees the key or leaves its queue, as driver.Backend describes. It frees the key at once,
// even if a child has inherited files (see [Backend.Inherit]). ctx bounds the wait: a release that
// is queued still takes effect. It fails as [Backend.Acquire] does.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return b.one(ctx, jobRelease, claim)
}

func (b *Backend) one(ctx context.Context, kind jobKind,
	claim driver.Claim) (driver.Result, error) {
	if err := b.usable(ctx); err != nil {
		return driver.Result{}, err
	}
	j := &job{kind: kind, name: keyName(claim.Key), claim: claim}
	if err := b.lanes.do(ctx, j); err != nil {
		return driver.Result{}, err
	}
	if j.result.Err != nil {
		return driver.Result{}, j.result.Err
	}
	return j.result, nil
}

// Notify calls f with every grant of a claim that this Backend has queued, until stop is called or
// the Backend is closed. Calls are made one at a time. f must not block, and must call neither the
// Backend nor stop. stop waits for a call that is under way; after it f is not called again.
// Calling it twice is safe.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) { return b.notices.listen(f) }

// Identity names the directory. It is the same for every spelling of dir, and stays the same until
// the machine is restarted. It fails when ctx has ended, after Close, and when the directory was
// removed.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	if err := b.usable(ctx); err != nil {
		return "", err
	}
	id, err := identify(b.dir.path)
	if err != nil {
		return "", b.dir.wrap(err)
	}
	return fmt.Sprintf("%x-%x-%x", b.dir.boot, id.dev, id.ino), nil
}

// Shares reports that shared claims are granted side by side: it returns true.
func (b *Backend) Shares() bool { return true }

// Dir returns the directory's absolute path, without symbolic links.
func (b *Backend) Dir() string { return b.dir.path }

// Inherit returns files for a child process, to be put into [os/exec.Cmd.ExtraFiles]. If the child
// has them, nobody else gets the locks of this Backend before the child has ended too, however this
// process ends. The files belong to the Backend: do not close them, and start the child before
// Close.
//
// Without them, a child that is killed together with its parent, or by the parent-death signal, may
// still run when the next holder starts, because the operating system closes the files of a dead
// process before it tells anybody of the death. With them, the locks of a killed parent last until
// every process that has the files has ended or closed them. They last no longer than their leases,
// because nobody is left to renew them.
//
// A Release or Close frees its keys even if a child has the files.
func (b *Backend) Inherit() []*os.File { return []*os.File{b.member.alive} }

// Close ends the use of the directory. Calls under way and later calls fail with ErrUnavailable,
// and waiters leave their queues. A key that is still held stays locked until its lease runs out or
// the process ends, because its holder may rely on it. So release keys before Close. If none is
// held, Close leaves nothing of this Backend in the directory. It waits for up to a second for keys
// whose files another process keeps locked. Each of them leaves a goroutine and a file descriptor,
// until that process lets go. Closing twice is safe. The error is always nil.
func (b *Backend) Close() error {
	b.closed.Do(b.leave)
	return nil
}

// leavePatience is how long Close waits for file locks that other processes have.
const leavePatience = time.Second

// leave takes our waiters out of their queues and ends everything that could still call us.
func (b *Backend) leave() {
	b.lanes.close(false)
	b.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	forgets := b.forgets()
	clean := b.lanes.do(ctx, forgets...) == nil
	for _, j := range forgets {
		clean = clean && j.result.Err == nil
	}
	b.lanes.close(true)

	b.work.Lock()
	var until time.Duration // end of our longest lease
	for _, mine := range b.mine {
		mine.disarm()
		until = max(until, mine.lease)
	}
	for id := range b.watches {
		b.endWatch(id)
	}
	if b.gone != nil || until <= clock.SinceBoot() {
		until = 0
	}
	clean = clean && b.gone == nil && until == 0
	b.work.Unlock()

	b.notices.stop()
	if clean {
		b.member.remove()
	}
	b.member.wake.Close() // receive then ends
	b.helpers.Wait()
	b.dir.stay(b.member, until)
}

// forgets returns a job for each key whose record may name us, and for each lane. Waiting for these
// jobs is waiting for the lanes to end.
func (b *Backend) forgets() (jobs []*job) {
	b.work.Lock()
	defer b.work.Unlock()
	names := b.lanes.names()
	for name := range b.mine {
		names[name] = nil
	}
	for name := range names {
		jobs = append(jobs, &job{kind: jobForget, name: name})
	}
	return jobs
}

// usable fails if ctx has ended or the Backend is closed.
func (b *Backend) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Node: b.dir.path, Err: err}
	}
	if b.ctx.Err() != nil {
		return b.dir.fail("%w", errClosed)
	}
	return nil
}

const maxOwnerLen = 512

// validate refuses a claim that breaks the driver contract or does not fit into a file.
func (b *Backend) validate(claim *driver.Claim) error {
	refuse := func(format string, args ...any) error {
		return &driver.Error{Node: b.dir.path, Invalid: true, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refuse("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case len(claim.Owner) == 0 || len(claim.Owner) > maxOwnerLen:
		return refuse("owner value of %d bytes: must have 1 to %d", len(claim.Owner), maxOwnerLen)
	case claim.TTL < time.Millisecond:
		return refuse("TTL %v: must be at least %v", claim.TTL, time.Millisecond)
	case claim.Token > maxToken || claim.Block > maxToken:
		return refuse("token %d with a block of %d: must be below 2^53", claim.Token, claim.Block)
	}
	return nil
}
