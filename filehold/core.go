//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// openPatience is how long Open waits for the directory's mutex.
var openPatience = 10 * time.Second

// core is an open Backend. One goroutine, the worker, does all work on the directory, in the order in which it was asked for: that
// keeps the calls for a key in order, lets callers leave when their context ends, whatever the disk does, and takes the
// mutex once for all who ask at the same time.
type core struct {
	dir    *directory
	member *member

	mu        sync.Mutex // protects jobs, abandoned and closed
	jobs      []*job
	abandoned int // how many of jobs are, at most
	closed    bool
	kick      chan struct{} // has room for one; jobs were added
	stop      chan struct{} // closed by close
	ended     chan struct{} // closed when the worker has ended

	notices notices
	readers sync.WaitGroup // goroutines that read pipes, or sync the fence

	// The rest belongs to the worker.
	turn    turn
	taken   []*job // jobs that were begun, or are to be done before c.jobs
	served  []*job // done in this turn
	gone    error  // set once the directory is lost
	mine    map[string]*track
	watches map[memberID]*watch
	looks   []string // keys to put in order, when there is time
	sweep   sweep
	raising bool // raiseAhead is under way
	alone   bool // nobody else was alive when we came
	tick    *time.Timer
}

func openCore(dir string, cfg config) (*core, error) {
	impatient, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	d, err := openDirectory(dir, cfg, impatient.Done())
	if err != nil {
		return nil, err
	}
	c := &core{
		dir:     d,
		kick:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		ended:   make(chan struct{}),
		mine:    make(map[string]*track),
		watches: make(map[memberID]*watch),
	}
	c.turn = turn{core: c, directory: d, known: make(map[memberID]bool)}
	c.notices.init()
	if err := c.enter(impatient.Done()); err != nil {
		if c.member != nil {
			c.member.remove()
			c.member.leave()
		}
		d.close()
		return nil, err
	}
	c.readers.Go(c.readMessages)
	c.tick = time.NewTimer(tickAfter())
	go c.work()
	if !c.alone {
		c.firstSweep(impatient)
	}
	return c, nil
}

// enter makes us a member, and the counter and the ceiling ready for the first grant. It begins with the mutex held, and ends
// without it.
func (c *core) enter(stop <-chan struct{}) error {
	d := c.dir
	err := c.enroll()
	var need uint64
	if err == nil {
		need, err = d.lowCeiling()
	}
	d.mutex.unlock()
	if err == nil && need > 0 {
		err = c.raiseCeiling(need, stop)
	}
	if err != nil {
		return c.failed(err)
	}
	return nil
}

func (c *core) enroll() error {
	d := c.dir
	alone, err := d.clear()
	if err != nil {
		return err
	}
	count, whole, err := d.peekCounter()
	if err != nil {
		return err
	}
	switch {
	case alone && !d.bootKnown:
		err = d.restartCounter(&count)
	case !alone && oneClock && whole && count.boot != d.boot:
		err = d.fail("is in use by processes of another machine, or with another clock (time namespace): leases there and here cannot be compared")
	}
	if err != nil {
		return err
	}
	c.alone = alone
	c.member, err = d.join()
	return err
}

// raiseCeiling makes the ceiling at least need, and waits for the disk. Only the worker calls it, or who comes before it: the file
// lock excludes other processes, not goroutines of this one.
func (c *core) raiseCeiling(need uint64, stop <-chan struct{}) error {
	var r raise
	err := c.locked(stop, func() (err error) {
		r, err = c.dir.beginRaise(need)
		return err
	})
	if err != nil {
		return err
	}
	// Others go on while the disk works.
	if err := syncFile(c.dir.fence); err != nil {
		return err
	}
	return c.locked(stop, func() error { return c.dir.endRaise(r) })
}

// raiseAhead raises the ceiling in the background before a grant has to wait for it. Called by the worker with the mutex held.
func (c *core) raiseAhead() {
	if c.raising {
		return
	}
	need, err := c.dir.lowCeiling()
	if need == 0 || err != nil {
		return // an error is told to who asks for a token
	}
	r, err := c.dir.beginRaise(need)
	if err != nil {
		return
	}
	c.raising = true
	c.readers.Go(func() {
		err := syncFile(c.dir.fence)
		c.post(func(*turn) {
			c.raising = false
			if err == nil {
				c.dir.endRaise(r)
				c.turn.counts = false
			}
		})
	})
}

func (c *core) locked(stop <-chan struct{}, f func() error) error {
	if err := c.dir.mutex.lock(stop); err != nil {
		return err
	}
	defer c.dir.mutex.unlock()
	return f()
}

// Errors.

func (c *core) unavailable(err error) error {
	return &driver.Error{Node: c.dir.path, Err: err}
}

var errClosed = errors.New("filehold: backend closed")

func (c *core) errClosed() error {
	return &driver.Error{Node: c.dir.path, Permanent: true, Err: errClosed}
}

func (c *core) errGone() error {
	return &driver.Error{Node: c.dir.path, Permanent: true, Err: errGone}
}

// failed makes an error of the driver contract of any.
func (c *core) failed(err error) error {
	var e *driver.Error
	if errors.As(err, &e) {
		return err
	}
	return c.dir.wrap(err)
}

// The methods behind those of Backend.

func (c *core) acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := c.validate(&claim); err != nil {
		return driver.Result{}, err
	}
	j := newJob(jobAcquire)
	j.claim = claim
	err := c.submit(ctx, j)
	if err != nil {
		return driver.Result{}, err
	}
	return j.result, nil
}

func (c *core) release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	j := newJob(jobRelease)
	j.claim = claim
	if err := c.submit(ctx, j); err != nil {
		return driver.Result{}, err
	}
	return j.result, nil
}

func (c *core) renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	j := newJob(jobRenew)
	// Copied: the caller may use its slice again when its context has ended and the worker has not.
	j.claims = append(j.claims, claims...)
	j.results = make([]driver.Result, len(claims))
	if err := c.submit(ctx, j); err != nil {
		return nil, err
	}
	return j.results, nil
}

func (c *core) identity(ctx context.Context) (string, error) {
	if err := c.usable(ctx); err != nil {
		return "", err
	}
	id, err := identify(c.dir.path)
	if err != nil {
		return "", c.failed(err)
	}
	return fmt.Sprintf("%x-%x-%x", c.dir.boot, id.dev, id.ino), nil
}

// usable fails if ctx has ended or the Backend is closed.
func (c *core) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return c.unavailable(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.errClosed()
	}
	return nil
}

func (c *core) path() string { return c.dir.path }

func (c *core) inherit() []*os.File { return []*os.File{c.member.file, c.member.alive} }

func (c *core) close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.mu.Unlock()
	<-c.ended
}

// job is something for the worker to do.
type job struct {
	kind    jobKind
	claim   driver.Claim
	claims  []driver.Claim
	results []driver.Result
	next    int // index of the first claim that is not renewed yet
	result  driver.Result
	err     error
	run     func(*turn) // jobInternal

	progress atomic.Int32
	done     chan struct{} // closed when result and err are set
}

type jobKind uint8

const (
	jobAcquire jobKind = iota
	jobRenew
	jobRelease
	jobInternal
)

// What becomes of a job. Of the worker who begins it and the caller who leaves, the first one wins.
const (
	jobWaiting   int32 = iota
	jobRunning         // begun by the worker
	jobAbandoned       // left by its caller, and never to be done
	jobLeft            // left by its caller, and to be done
)

// begin reports whether the worker is to do the job; again, if it has begun it before.
func (j *job) begin() bool {
	return j.progress.CompareAndSwap(jobWaiting, jobRunning) || j.progress.Load() != jobAbandoned
}

func newJob(kind jobKind) *job { return &job{kind: kind, done: make(chan struct{})} }

// submit has the worker do the job and waits for it. When ctx ends before the worker has come to the job, it never will, as
// what comes late is of no use to anybody; but a release is, to those who wait for the key.
func (c *core) submit(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return c.unavailable(err)
	}
	if !c.add(j) {
		return c.errClosed()
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	outcome := jobAbandoned
	if j.kind == jobRelease {
		outcome = jobLeft
	}
	if !j.progress.CompareAndSwap(jobWaiting, outcome) {
		outcome = jobRunning
	}
	select {
	case <-j.done:
		return j.err
	default:
	}
	if outcome == jobAbandoned {
		c.discard()
	}
	err := ctx.Err()
	if outcome != jobRunning && c.dir.mutex.stalled.Load() {
		err = c.dir.stalled(err)
	}
	return &driver.Error{Node: c.dir.path, Maybe: outcome != jobAbandoned, Err: err}
}

// add queues a job, unless the Backend is closed.
func (c *core) add(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.jobs = append(c.jobs, j)
	select {
	case c.kick <- struct{}{}:
	default:
	}
	return true
}

// discard makes room for others when most jobs were abandoned: who asks again and again while the mutex is kept must not fill
// the memory.
func (c *core) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned++; c.abandoned < 64 || c.abandoned < len(c.jobs)/2 {
		return
	}
	c.jobs = slices.DeleteFunc(c.jobs, func(j *job) bool { return j.progress.Load() == jobAbandoned })
	c.abandoned = 0
}

// post has the worker run f with the mutex held.
func (c *core) post(f func(*turn)) {
	j := newJob(jobInternal)
	j.run = f
	c.add(j)
}
