package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/quorum"
)

// errDone ends the campaign after COMMAND has ended because holdfast was told to end.
var errDone = errors.New("the command was told to end")

// leader is one call of holdfast lead.
type leader struct {
	job     *job
	say     *messages
	backend driver.Backend
	signals *relay
	cancel  context.CancelCauseFunc

	result error // what run returns, once cancel was called with errDone

	mu     sync.Mutex
	holder string // who was last said to lead
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
	e, err := election.New(locker, j.names[0], election.WithOnError(l.note),
		// child.Run ends the command itself, and returns soon after its grace.
		election.WithGrace(j.grace+time.Hour))
	if err != nil {
		return usagef("%w", err)
	}
	if err := child.TakeOrphans(); err != nil {
		l.say.printf(
			"programs that leave the command's process group may outlive a lost lock: %v", err)
	}
	err = e.Run(ctx, l.lead)
	l.signals.quit()
	after.heed(signals)
	return l.outcome(ctx, err)
}

// outcome turns the error of Run into that of run.
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
		return &exit{codeUnavailable, err}
	}
}

// lead runs the command for one term.
func (l *leader) lead(ctx context.Context, term election.Term) error {
	j := l.job
	l.mu.Lock()
	l.holder, l.lost = "", false
	l.mu.Unlock()
	if !j.quiet {
		l.say.printf("leading %q (token %d)", j.names[0], term.Token())
	}
	signals := l.signals.attach()
	result, err := child.Run(child.Command{
		Path: j.path,
		Args: j.args,
		Env: append(outerEnvironment(), keyVariable+"="+j.names[0],
			tokenVariable+"="+term.Token().String()),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Inherit: inherited(l.backend),
	}, child.Options{
		Lease:   lease{ctx, term},
		Signals: signals,
		Grace:   j.grace,
		Again:   true,
		Lost: func(reason error) time.Duration {
			grace := j.graceFor(reason)
			l.say.printf("%v; the command gets %s", reason, sentence(grace))
			l.setLost()
			return grace
		},
		Warn: func(err error) { l.say.printf("%v", err) },
	})
	told := l.signals.detach(result.Code)
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

// end has run return err after this term.
func (l *leader) end(err error) {
	l.result = err
	l.cancel(errDone)
}

// standby says who leads, when that has changed.
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

// note says what the election tells. A loss that the command has heard of was said already.
func (l *leader) note(err error) {
	if errors.Is(err, holdfast.ErrLost) && l.setLost() {
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
