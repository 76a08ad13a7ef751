package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/notify"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/quorum"
)

// errDone ends the campaign after COMMAND has ended because holdfast was told to end.
var errDone = errors.New("the command was told to end")

// leadFlags are the flags of holdfast lead that run does not have.
type leadFlags struct {
	onChange     string // a shell line; empty: none
	statusFile   string // empty: none
	announce     string
	preferred    bool
	preferredSet bool // --preferred was given, with either value
}

// options returns those of the election. It fails if election.New does not take what flags say.
func (f *leadFlags) options(l *holdfast.Locker, name, label string) ([]election.Option, error) {
	var options []election.Option
	if f.announce != "" {
		options = append(options, election.WithIdentity(label), election.WithPayload(f.announce))
		if _, err := election.New(l, name, options...); err != nil {
			return nil, usagef("--announce %.40q with the label %q: must be text without <, > and "+
				"control characters, and with the label at most %d bytes", f.announce, label,
				driver.MaxLabelLen)
		}
	}
	if f.preferredSet {
		options = append(options, election.WithPreferred(f.preferred))
		if _, err := election.New(l, name, options...); err != nil {
			return nil, usagef("--preferred: %w", err)
		}
	}
	return options, nil
}

// self is how others see the candidate when it leads.
func (f *leadFlags) self(label string) string {
	if f.announce != "" {
		label += " <" + f.announce + ">" // as election.WithPayload says
	}
	return driver.ParseOwner(driver.NewOwner(driver.OwnerSuffix(label))).String()
}

// leader is one call of holdfast lead.
type leader struct {
	job      *job
	flags    leadFlags
	standing *standing
	say      *messages
	backend  driver.Backend
	signals  *relay
	cancel   context.CancelCauseFunc

	result error // what run returns, once cancel was called with errDone

	mu     sync.Mutex
	holder string // who was last said to lead
	runs   bool   // the command runs, and hears itself that the lock is lost
	heard  error  // a loss that was told while the command ran
	lost   bool   // the lock of the last term was lost
}

// run campaigns, and runs the command while it leads, until a signal or an error that will not go
// away. It returns nil or an *exit, as job.run does.
func (l *leader) run(s streams) (err error) {
	j := l.job
	signals, stop := child.Signals()
	defer func() {
		if err != nil {
			stop() // Main writes a message, which may block: then a signal must end the process
		}
	}()
	ignoreBrokenPipe()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	l.cancel = cancel
	l.signals = newRelay(signals, cancel)
	defer l.signals.quit()
	l.say = newMessages(s.err, j.names...)
	defer l.say.flush()
	after := newCleanup()
	defer after.end()
	var servers nodes
	if !j.quiet {
		servers.say = l.say.printf
	}
	if l.backend, err = j.open(ctx, s, servers.observe); err != nil {
		return err
	}
	defer after.bounded(func() {
		if err := l.backend.Close(); err != nil {
			l.say.printf("cannot close the backend: %v", err)
		}
		if q, ok := l.backend.(*quorum.Quorum); ok {
			servers.end(q.Status())
		}
	})
	locker, err := holdfast.New(l.backend, holdfast.WithTTL(j.ttl), holdfast.WithMaxHold(j.maxHold),
		holdfast.WithLabel(j.label), holdfast.WithPrefix(j.prefix()),
		holdfast.WithHooks(holdfast.Hooks{Waiting: l.standby}))
	if err != nil {
		return usagef("%w", err)
	}
	defer after.bounded(func() {
		if err := locker.Close(); err != nil {
			l.say.printf("%v; a lock that was not released ends with its lease", err)
		}
	})
	options, err := l.flags.options(locker, j.names[0], j.label)
	if err != nil {
		return err
	}
	e, err := election.New(locker, j.names[0], append(options, election.WithOnError(l.note),
		// child.Run ends the command itself, and returns soon after its grace.
		election.WithGrace(min(j.grace, math.MaxInt64-time.Hour)+time.Hour))...)
	if err != nil {
		return usagef("%w", err)
	}
	if err := child.TakeOrphans(); err != nil {
		l.say.printf(
			"programs that leave the command's process group may outlive a lost lock: %v", err)
	}
	tellers, err := l.tell(e)
	if err != nil {
		return err
	}
	err = e.Run(ctx, l.lead)
	l.signals.quit()
	tellers()
	after.heed(signals)
	return l.outcome(ctx, err)
}

// tell starts to tell others how this candidate stands and who leads. end ends that.
func (l *leader) tell(e *election.Election) (end func(), err error) {
	l.standing, err = newStanding(l.flags.statusFile, l.job.names[0],
		l.flags.self(l.job.label), l.say)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() { l.standing.run(ctx) })
	heard := []func(election.Leader){l.standing.ledBy}
	if l.flags.onChange != "" {
		hook := newOnChange(l.flags.onChange, l.job.names[0], l.say)
		heard = append(heard, hook.tell)
		all.Go(func() { hook.run(ctx) })
	}
	if l.flags.onChange != "" || l.flags.statusFile != "" {
		all.Go(func() { l.observe(ctx, e, heard) })
	}
	return func() {
		cancel()
		all.Wait()
	}, nil
}

// observe tells who leads, until ctx ends. If this cannot be learned, it says so once.
func (l *leader) observe(ctx context.Context, e *election.Election, heard []func(election.Leader)) {
	failing := false
	for now, err := range e.Observe(ctx) {
		if err != nil {
			if !failing {
				l.say.printf("who leads is not known: %v", err)
			}
			failing = true
			continue
		}
		failing = false
		for _, hear := range heard {
			hear(now)
		}
	}
}

// outcome returns the error of run for that of Run.
func (l *leader) outcome(ctx context.Context, err error) error {
	signalled := signalled(ctx)
	switch {
	case errors.Is(err, errDone) && l.wasLost():
		return &exit{code: codeLost}
	case errors.Is(err, errDone):
		return l.result
	case signalled != nil:
		return signalled
	case errors.Is(err, holdfast.ErrInvalid):
		return &exit{codeUsage, err}
	default:
		return &exit{failureCode(err), err}
	}
}

// lead runs the command for one term.
func (l *leader) lead(ctx context.Context, term election.Term) error {
	j := l.job
	l.mu.Lock()
	l.holder, l.lost, l.runs, l.heard = "", false, true, nil
	l.mu.Unlock()
	l.standing.leads(term.Token())
	defer l.standing.standsBy()
	if !j.quiet {
		l.say.printf("leading %q (token %d)", j.names[0], term.Token())
	}
	signals := l.signals.attach()
	result, err := child.Run(child.Command{
		Path: j.path,
		Args: j.args,
		Env: append(withoutManager(outerEnvironment()), keyVariable+"="+j.names[0],
			tokenVariable+"="+term.Token().String()),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Inherit: inherited(l.backend),
	}, child.Options{
		Lease:   lease{ctx, term},
		Signals: signals,
		Grace:   j.grace,
		Reloads: true,
		Again:   true,
		Lost: func(reason error) time.Duration {
			grace := j.graceFor(reason)
			l.say.printf("%v; the command gets %s", reason, sentence(grace))
			if !errors.Is(reason, election.ErrPreferred) {
				l.setLost()
			}
			return grace
		},
		Warn: func(err error) { l.say.printf("%v", err) },
	})
	told := l.signals.detach(result.Code)
	l.mu.Lock()
	l.runs = false
	missed := l.heard
	l.mu.Unlock()
	if missed != nil && result.Lost == nil { // the command ended at that moment
		l.note(missed)
	}
	switch {
	case err != nil:
		l.end(startError(err))
	case told && result.Code != 0:
		l.end(&exit{code: result.Code})
	case told:
		l.end(nil)
	case result.Lost == nil:
		return fmt.Errorf("the command has ended with exit code %d", result.Code)
	}
	return context.Cause(ctx)
}

// withoutManager removes the variables that name the service manager, because holdfast itself tells
// the manager.
func withoutManager(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool {
		variable, _, _ := strings.Cut(v, "=")
		return slices.Contains(notify.Variables, variable)
	})
}

// end has run return err after this term.
func (l *leader) end(err error) {
	l.result = err
	l.cancel(errDone)
}

// standby says who leads if that has changed.
func (l *leader) standby(e holdfast.WaitingEvent) {
	if l.job.quiet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == e.Holder.Value {
		return
	}
	l.holder = e.Holder.Value
	l.say.printf("standing by for %q, led by %v", e.Key, e.Holder)
}

// note reports an error of the election. If a command runs and hears of the loss, the message about
// the command reports it.
func (l *leader) note(err error) {
	if errors.Is(err, holdfast.ErrLost) && (l.commandHears(err) || l.setLost()) {
		return
	}
	var term *election.TermError
	if errors.As(err, &term) {
		err = term.Err
	}
	l.say.printf("%v", err)
}

// setLost notes that the lock was lost, and reports whether that was known.
func (l *leader) setLost() (known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, l.lost = l.lost, true
	return known
}

// commandHears reports whether a command runs, and then keeps the loss.
func (l *leader) commandHears(loss error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs {
		l.heard = loss
	}
	return l.runs
}

func (l *leader) wasLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lease is a term as the command's lease.
type lease struct {
	ctx  context.Context
	term election.Term
}

// Done is closed when the term has ended.
func (l lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns why the term has ended, and nil before.
func (l lease) Err() error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return l.term.Err()
}
