package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/waitline"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

const (
	// openTime bounds the opening of a backend: a server that does not answer is told soon.
	openTime = 15 * time.Second

	// releaseTime bounds the wait for the answer to a release. If there is none, the lease ends the lock.
	releaseTime = 5 * time.Second

	// closeTime bounds what is still to be cleaned up after that. The Locker has a bound of its own; this one is for
	// a backend that does not keep to it.
	closeTime = 10 * time.Second
)

// job is one call of holdfast run with valid arguments.
type job struct {
	name    string
	path    string   // of the command
	args    []string // of the command, its name first
	address address  // nil: the directory of the user

	ttl     time.Duration
	try     bool          // do not wait
	wait    time.Duration // 0: for ever
	maxHold time.Duration
	grace   time.Duration
	label   string
	quiet   bool
}

// address is where a backend is, as *backendurl.Address says it.
type address interface {
	fmt.Stringer
	Prefix() string
	Open(ctx context.Context) (driver.Backend, error)
}

// errTooLong ends a wait that has lasted for as long as --wait allows.
var errTooLong = errors.New("waited for as long as --wait allows")

// signalError ends a wait because of a signal.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return e.Signal.String() }

// run does the job. It returns an *exit unless the command has run under the lock and ended with 0.
func (j *job) run(s streams) error {
	signals, stop := child.Signals()
	defer stop()
	defer ignoreBrokenPipe()()

	// Until the command runs, a signal ends the waiting, for the backend as for the lock.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()

	say := newMessages(s.err)
	defer say.flush()

	backend, err := j.open(ctx, s)
	if err != nil {
		return err
	}
	acquired := false
	defer bounded(func() {
		if err := backend.Close(); err != nil {
			say.printf("closing the backend: %v", err)
		}
		// Now that all nodes have answered, or never will. An error has said it already.
		if q, ok := backend.(*quorum.Quorum); ok && acquired && !j.quiet {
			status := q.Status()
			for _, line := range status.Warnings() {
				say.printf("%s", line)
			}
		}
	})
	line := waitline.New(s.err, j.name, terminalWidth(s.err))
	if j.quiet {
		line = waitline.New(io.Discard, j.name, nil)
	}
	locker, err := holdfast.New(backend,
		holdfast.WithTTL(j.ttl),
		holdfast.WithMaxHold(j.maxHold),
		holdfast.WithLabel(j.label),
		holdfast.WithPrefix(j.prefix()),
		holdfast.WithHooks(holdfast.Hooks{Waiting: line.Update}))
	if err != nil {
		return usagef("%w", err)
	}
	defer bounded(func() {
		if err := locker.Close(); err != nil {
			say.printf("%v", err)
		}
	})

	lock, err := j.acquire(ctx, cancel, locker, line)
	quit()
	if signalled := signalled(ctx); signalled != nil {
		if err == nil {
			_ = j.release(lock) // it came too late for Acquire, and in time for us
		}
		return signalled
	}
	if err != nil {
		return err
	}
	acquired = true
	result, err := child.Run(child.Command{
		Path:    j.path,
		Args:    j.args,
		Env:     environment(lock),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Inherit: inherited(backend),
	}, child.Options{
		Lease:   lock,
		Signals: signals,
		Lost: func(reason error) time.Duration {
			grace := j.graceFor(reason)
			say.printf("%v; the command gets %s", reason, sentence(grace))
			return grace
		},
		Warn: func(err error) { say.printf("%v", err) },
	})
	released := j.release(lock)
	switch {
	case err != nil:
		return startError(err)
	case result.Lost != nil:
		return &exit{code: codeLost}
	case errors.Is(released, holdfast.ErrLost):
		// Nobody knows since when: the command may have run beside another holder.
		return &exit{codeLost, released}
	case released != nil:
		say.printf("%v; the lock ends with its lease at the latest", released)
	}
	if result.Code != 0 {
		return &exit{code: result.Code}
	}
	return nil
}

// open opens the backend, and says where it is if nobody has named one.
func (j *job) open(ctx context.Context, s streams) (driver.Backend, error) {
	at, name := j.address, ""
	if at == nil {
		dir, err := backendurl.UserDir()
		if err != nil {
			return nil, &exit{codeUnavailable, err}
		}
		if !j.quiet {
			// Not by way of messages, which might come after the line of a wait has been begun.
			io.WriteString(s.err, message(fmt.Sprintf("locks on this machine only, in %s; for others set --on or %s", dir, urlVariable)))
		}
		at = backendurl.Dir(dir)
	} else {
		name = at.String() + ": "
	}
	type opened struct {
		driver.Backend
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	done := make(chan opened, 1)
	go func() {
		backend, err := at.Open(ctx)
		done <- opened{backend, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, &exit{codeUnavailable, fmt.Errorf("%s%w", name, o.err)}
		}
		return o.Backend, nil
	case <-ctx.Done():
		// What is half open is closed by the end of this process.
		if signalled := signalled(ctx); signalled != nil {
			return nil, signalled
		}
		return nil, &exit{codeUnavailable, fmt.Errorf("%sno answer within %v", name, openTime)}
	}
}

func (j *job) prefix() string {
	if j.address == nil {
		return ""
	}
	return j.address.Prefix()
}

// acquire waits for the lock as long as it may. What a wait that failed has left at the backend is gone when the
// Locker is closed.
func (j *job) acquire(ctx context.Context, cancel context.CancelCauseFunc, locker *holdfast.Locker, line *waitline.Line) (*holdfast.Lock, error) {
	acquire := locker.Acquire
	if j.try {
		acquire = locker.TryAcquire
	} else if j.wait > 0 {
		timer := time.AfterFunc(j.wait, func() { cancel(errTooLong) })
		defer timer.Stop()
	}
	lock, err := acquire(ctx, j.name)
	line.End(err == nil && signalled(ctx) == nil)
	if err != nil {
		return nil, j.refusal(err, line)
	}
	return lock, nil
}

// signalled returns the exit for a signal that ended ctx, or nil.
func signalled(ctx context.Context) error {
	var s signalError
	if !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &exit{code: child.ExitCode(s.Signal)}
}

// cancelOnSignal cancels with a signalError when a signal comes that would end a program. After quit has returned
// no more are taken from the channel. It may be called twice.
func cancelOnSignal(signals <-chan os.Signal, cancel context.CancelCauseFunc) (quit func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if child.Ends(s) {
					cancel(signalError{s})
					return
				}
			case <-stopping:
				return
			}
		}
	}()
	once := sync.OnceFunc(func() { close(stopping) })
	return func() {
		once()
		<-stopped
	}
}

// refusal is the exit for an acquisition that failed.
func (j *job) refusal(err error, line *waitline.Line) error {
	last, heard := line.Last()
	var held *holdfast.HeldError
	switch {
	case errors.Is(err, holdfast.ErrInvalid):
		return &exit{codeUsage, err}
	case errors.As(err, &held):
		return j.busy(held)
	case errors.Is(err, errTooLong) && heard:
		return j.busy(fmt.Errorf("%q was not free within --wait %v; held by %v", j.name, j.wait, last.Holder))
	case errors.Is(err, errTooLong):
		return &exit{codeUnavailable, fmt.Errorf("no answer from the backend within --wait %v", j.wait)}
	default:
		return &exit{codeUnavailable, err}
	}
}

func (j *job) busy(err error) error {
	if j.quiet {
		err = nil
	}
	return &exit{codeBusy, err}
}

// graceFor is how long the command may take to stop. At --max-hold the lock is not lost yet, it is only not renewed
// any more, and two thirds of the lease are left at least: the command is gone before anybody else gets the lock.
func (j *job) graceFor(reason error) time.Duration {
	if errors.Is(reason, holdfast.ErrMaxHold) {
		return min(j.grace, j.ttl/2)
	}
	return j.grace
}

func sentence(grace time.Duration) string {
	if grace <= 0 {
		return "SIGKILL"
	}
	return fmt.Sprintf("SIGTERM, and SIGKILL in %v", grace)
}

// release frees the lock.
func (j *job) release(lock *holdfast.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	return lock.Release(ctx)
}

// environment is that of this process, and what the command is to know about its lock.
func environment(lock *holdfast.Lock) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOLDFAST_KEY=") || strings.HasPrefix(v, "HOLDFAST_TOKEN=")
	})
	return append(env, "HOLDFAST_KEY="+lock.Key(), "HOLDFAST_TOKEN="+lock.Token().String())
}

// inherited are the files of a backend that keep its locks for as long as the command has them open, so that they do
// not pass on in the moment between the death of holdfast and that of the command.
func inherited(backend driver.Backend) []*os.File {
	if b, ok := backend.(interface{ Inherit() []*os.File }); ok {
		return b.Inherit()
	}
	return nil
}

// terminalWidth returns the width of the terminal behind w, and nil if there is none that can erase a line.
func terminalWidth(w any) func() int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
}

// bounded returns when f does, or after closeTime.
func bounded(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(closeTime):
	}
}
