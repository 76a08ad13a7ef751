package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/waitline"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// openTime bounds the opening of a backend, so that a server that does not answer is reported soon.
const openTime = 15 * time.Second

// job is one call of holdfast run or holdfast hold, with checked arguments.
type job struct {
	names   []string // of the locks, as they were given
	path    string   // of the command
	args    []string // of the command, its name first
	address address  // nil: the directory that UserDir returns

	ttl     time.Duration
	try     bool          // do not wait
	wait    time.Duration // 0: for ever
	maxHold time.Duration
	shared  bool
	grace   time.Duration
	label   string
	quiet   bool
	permits int // 0: a lock

	busyCode int // exit code if another holder has the lock

	record *record // for --metrics-file
}

// address is what job needs of *backendurl.Address; tests have their own.
type address interface {
	fmt.Stringer
	Prefix() string
	CheckTTL(ttl time.Duration) error
	Open(ctx context.Context, watch func(quorum.NodeEvent)) (driver.Backend, error)
	Look(ctx context.Context) (driver.Backend, error)
}

// errTooLong ends a wait after the time that --wait allows.
var errTooLong = errors.New("waited for as long as --wait allows")

// signalError ends a wait because of a signal.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return e.Signal.String() }

// run does the job. It returns nil if the command ended with 0 under the lock, or if the lock was
// held until a signal. Every other error is an *exit.
func (j *job) run(s streams) (err error) {
	signals, stop := child.Signals()
	defer func() {
		// Without an error the process ends at once, and stop would only cost time. With an error
		// Main writes a message, which may block: then a signal must end the process.
		if err != nil {
			stop()
		}
	}()
	ignoreBrokenPipe()

	// Until the command runs, a signal ends the wait for the backend and for the lock.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()

	say := newMessages(s.err, j.names...)
	defer say.flush()

	after := newCleanup()
	defer after.end()

	var servers nodes
	if !j.quiet {
		servers.say = say.printf
	}
	backend, err := j.open(ctx, s, servers.observe)
	if err != nil {
		return err
	}
	defer after.bounded(func() {
		if err := backend.Close(); err != nil {
			say.printf("cannot close the backend: %v", err)
		}
		// Close has waited for the nodes' last answers, so the status is final.
		if q, ok := backend.(*quorum.Quorum); ok {
			servers.end(q.Status())
		}
	})
	if err := j.checkShared(backend); err != nil {
		return err
	}
	line := waitline.New(s.err, j.names, terminalWidth(s.err), j.since(backend))
	if j.quiet {
		line = waitline.New(io.Discard, j.names, nil, nil)
	}
	told := make(chan struct{}, len(j.names)) // a lock was acquired, or all were refused
	locker, err := holdfast.New(backend, append(j.mode(),
		holdfast.WithTTL(j.ttl),
		holdfast.WithMaxHold(j.maxHold),
		holdfast.WithLabel(j.label),
		holdfast.WithPrefix(j.prefix()),
		holdfast.WithHooks(holdfast.Hooks{
			Waiting:  line.Update,
			Acquired: func(holdfast.AcquiredEvent) { told <- struct{}{} },
			Refused:  func(holdfast.RefusedEvent) { told <- struct{}{} },
		}))...)
	if err != nil {
		return usagef("%w", err)
	}
	defer after.bounded(func() {
		if err := locker.Close(); err != nil && !after.told {
			say.printf("%v; a lock that was not released ends with its lease", err)
		}
	})

	locks, err := j.acquire(ctx, cancel, locker, line, told, say)
	quit()
	if signalled := signalled(ctx); signalled != nil {
		after.heed(signals)
		if err == nil {
			_ = after.release(locks) // they were granted before the signal could cancel the wait
		}
		return signalled
	}
	if err != nil {
		after.heed(signals)
		return err
	}
	j.record.acquired = time.Now()
	servers.begin()
	if j.path == "" {
		return j.hold(s, locks, signals, after, say)
	}
	return j.command(backend, locks, signals, after, say)
}

// command runs the command, and then releases the locks. It returns nil if the command ended with 0
// and no lock was lost, else an *exit.
func (j *job) command(backend driver.Backend, locks grip, signals <-chan os.Signal,
	after *cleanup, say *messages) error {
	if err := child.TakeOrphans(); err != nil {
		say.printf(
			"programs that leave the command's process group may outlive a lost lock: %v", err)
	}
	result, err := child.Run(child.Command{
		Path:    j.path,
		Args:    j.args,
		Env:     environment(j.names, locks),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Inherit: inherited(backend),
	}, child.Options{
		Lease:   locks,
		Signals: signals,
		Grace:   j.grace,
		Lost: func(reason error) time.Duration {
			grace := j.graceFor(reason)
			say.printf("%v; the command gets %s", reason, sentence(grace))
			return grace
		},
		Warn: func(err error) { say.printf("%v", err) },
	})
	after.heed(signals)
	released := after.release(locks)
	switch {
	case err != nil:
		return startError(err)
	case result.Lost != nil:
		j.record.lost = true
		return &exit{code: codeLost}
	case errors.Is(released, holdfast.ErrLost):
		// Nobody knows when the lock was lost: the command may have run beside another holder.
		j.record.lost = true
		return &exit{codeLost, released}
	case released != nil:
		after.tell(say, released)
	}
	if result.Code != 0 {
		return &exit{code: result.Code}
	}
	return nil
}

// open opens the backend. Without an address it opens the user's directory, and says so unless the
// job is quiet. It returns an *exit if that fails, takes longer than openTime, or is ended by a
// signal.
func (j *job) open(ctx context.Context, s streams,
	watch func(quorum.NodeEvent)) (driver.Backend, error) {
	at, name, err := addressOr(ctx, j.address, s, j.quiet)
	if err != nil {
		return nil, err
	}
	return openWithin(ctx, name, openTime, func(ctx context.Context) (driver.Backend, error) {
		return at.Open(ctx, watch)
	})
}

// addressOr returns the address and how errors begin. Without an address that is the user's
// directory, and it says so unless it is to be quiet.
func addressOr(ctx context.Context, at address, s streams, quiet bool) (address, string, error) {
	if at != nil {
		return at, at.String() + ": ", nil
	}
	dir, err := backendurl.UserDir()
	if err != nil {
		return nil, "", &exit{codeUnavailable, err}
	}
	if !quiet {
		// Written directly: messages are asynchronous, and could land in the middle of a status
		// line.
		write(ctx, s.err,
			message(fmt.Sprintf("locks on this machine only, in %s; for several machines set --on or %s",
				dir, urlVariable)))
	}
	return backendurl.Dir(dir), "", nil
}

// openWithin opens a backend within a time. name begins its errors.
func openWithin(ctx context.Context, name string, patience time.Duration,
	open func(context.Context) (driver.Backend, error)) (driver.Backend, error) {
	// The end of this process closes what open leaves open.
	backend, err := look.Bounded(ctx, patience, open)
	if signalled := signalled(ctx); err != nil && signalled != nil {
		return nil, signalled
	}
	if err != nil {
		return nil, &exit{failureCode(err), fmt.Errorf("%s%w", name, err)}
	}
	return backend, nil
}

func (j *job) prefix() string {
	if j.address == nil {
		return ""
	}
	return j.address.Prefix()
}

// acquire waits for all locks for as long as --wait allows. It returns an *exit if it fails; the
// Locker's Close then removes what is left at the backend.
func (j *job) acquire(ctx context.Context, cancel context.CancelCauseFunc, locker *holdfast.Locker,
	line *waitline.Line, told <-chan struct{}, say *messages) (grip, error) {
	if !j.try && j.wait > 0 {
		timer := time.AfterFunc(j.wait, func() { cancel(errTooLong) })
		defer timer.Stop()
	}
	acquire := func() (grip, error) {
		locks, err := j.attempt(ctx, locker)
		events := 1
		if err == nil {
			events = len(locks.Locks())
		}
		for range events { // hooks run a moment later; wait for the last one
			<-told
		}
		return locks, err
	}
	begin, said := time.Now(), false
	locks, err := acquire()
	for err != nil && j.outlasts(ctx, err, begin) {
		if !said && !j.quiet {
			say.printf("%v; waiting for that", err)
			said = true
		}
		if !pause(ctx, quarantineOf(err)) {
			break
		}
		locks, err = acquire()
	}
	line.End(err == nil && signalled(ctx) == nil)
	if err != nil {
		return nil, j.refusal(err, line)
	}
	return locks, nil
}

// outlasts reports whether to try again: err is a quarantine of the servers, and the wait may last
// longer than the quarantine.
func (j *job) outlasts(ctx context.Context, err error, begin time.Time) bool {
	rest := quarantineOf(err)
	return rest > 0 && !j.try && ctx.Err() == nil &&
		(j.wait == 0 || rest < j.wait-time.Since(begin))
}

// quarantineOf returns how long the servers still grant nothing if err is a quarantine, else 0.
func quarantineOf(err error) time.Duration {
	var q *driver.QuarantineError
	if !errors.As(err, &q) {
		return 0
	}
	return q.Remaining
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signalled returns the exit for a signal that ended ctx, or nil.
func signalled(ctx context.Context) error {
	var s signalError
	if !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &exit{code: child.ExitCode(s.Signal)}
}

// cancelOnSignal cancels with a signalError on the first signal that would end a program. quit
// stops reading the channel, and returns when that is done. It may be called twice.
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

// refusal returns the *exit for an acquisition that failed.
func (j *job) refusal(err error, line *waitline.Line) error {
	last, heard := line.Last()
	var held *holdfast.HeldError
	switch {
	case errors.Is(err, holdfast.ErrInvalid):
		return &exit{codeUsage, err}
	case errors.As(err, &held):
		return j.busy("is held by %v", held.Key, held.Holder, held.ExpiresIn, line)
	case errors.Is(err, errTooLong) && heard:
		return j.busy(fmt.Sprintf("was not free within --wait %v; held by %%v", j.wait),
			last.Key, last.Holder, 0, line)
	case errors.Is(err, errTooLong):
		return &exit{codeUnavailable, fmt.Errorf("no answer from the backend within --wait %v",
			j.wait)}
	default:
		return &exit{failureCode(err), err}
	}
}

// busy returns the *exit for a lock that another holder has. format has one verb, for the holder.
func (j *job) busy(format, name string, holder holdfast.Holder, left time.Duration,
	line *waitline.Line) error {
	if j.quiet {
		return &exit{code: j.busyCode}
	}
	return &exit{j.busyCode, fmt.Errorf("%q "+format, name, line.Held(name, holder, left))}
}

// sinceTime bounds the request for the time since when a holder has the lock.
const sinceTime = time.Second

// since returns a function that asks the backend when a holder got the lock. The function returns
// the zero time if the backend cannot tell. A directory keeps the token of the last grant, which is
// a time in microseconds, unless the clock was behind earlier tokens. Redis does not keep the
// token.
func (j *job) since(backend driver.Backend) waitline.Since {
	return func(ctx context.Context, name string, holder holdfast.Holder) time.Time {
		inspector, ok := backend.(driver.Inspector)
		if !ok {
			return time.Time{}
		}
		ctx, cancel := context.WithTimeout(ctx, sinceTime)
		defer cancel()
		entry, err := inspector.Inspect(ctx, j.prefix()+name)
		if err != nil {
			return time.Time{}
		}
		for _, p := range append(entry.Sharers, entry.Holder) {
			if p.Owner == holder.Value && p.Token > 0 {
				return look.Since(p.Token, time.Now())
			}
		}
		return time.Time{}
	}
}

// graceFor returns how long the command may take to stop. At --max-hold the lock is not lost yet:
// the lease is no longer renewed, but at least two thirds of it are left. With half of the TTL as
// the limit, the command is gone before anybody else gets the lock.
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

const keyVariable = "HOLDFAST_KEY"

// environment returns the environment of this process with the keys and tokens of the locks: those
// of one lock, or numbered by the place of each name; and with the slot of a permit. What an outer
// holdfast has set is left out: a guard must not get the token of another lock.
func environment(names []string, locks grip) []string {
	env := outerEnvironment()
	for i, name := range names {
		number := ""
		if len(names) > 1 {
			number = "_" + strconv.Itoa(i+1)
		}
		env = append(env, keyVariable+number+"="+name,
			tokenVariable+number+"="+locks.Token(name).String())
	}
	if slot := locks.Locks()[0].Slot(); slot >= 0 {
		env = append(env, slotVariable+"="+strconv.Itoa(slot))
	}
	return env
}

// outerEnvironment is the environment of this process without what an outer holdfast has set.
func outerEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		variable, _, _ := strings.Cut(v, "=")
		return isNumbered(variable, keyVariable) || isNumbered(variable, tokenVariable) ||
			variable == slotVariable
	})
}

// isNumbered reports whether a variable is the one called name, or that with a number.
func isNumbered(variable, name string) bool {
	number, ok := strings.CutPrefix(variable, name)
	if !ok || number == "" {
		return ok
	}
	digits, ok := strings.CutPrefix(number, "_")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// inherited returns the files by which a backend knows that the holder lives. The command has them
// open too. So if holdfast is killed, the lock stays until the command is dead as well.
func inherited(backend driver.Backend) []*os.File {
	if b, ok := backend.(interface{ Inherit() []*os.File }); ok {
		return b.Inherit()
	}
	return nil
}

// terminalWidth returns a function for the width of the terminal behind w, in columns. It returns
// nil if w is no terminal, or one that cannot erase a line.
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
