package cli

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/election"
)

// The environment of --on-change, beside keyVariable.
const (
	leaderVariable     = "HOLDFAST_LEADER"
	leaderHostVariable = "HOLDFAST_LEADER_HOST"
	leaderPIDVariable  = "HOLDFAST_LEADER_PID"
	announcedVariable  = "HOLDFAST_ANNOUNCED"
)

// lastCall is how long the line of --on-change may run on when holdfast ends.
const lastCall = time.Second

// onChange runs a shell line for each leader, one at a time. Of leaders that come and go while the
// line runs, it tells only the last.
type onChange struct {
	line string
	key  string
	say  *messages

	mu    sync.Mutex
	next  *election.Leader // nil: none since the line last began
	woken chan struct{}
}

func newOnChange(line, key string, say *messages) *onChange {
	return &onChange{line: line, key: key, say: say, woken: make(chan struct{}, 1)}
}

// tell has the line run for this leader, soon. It does not block.
func (o *onChange) tell(l election.Leader) {
	o.mu.Lock()
	o.next = &l
	o.mu.Unlock()
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// run returns when ctx has ended and the line does not run any more.
func (o *onChange) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.woken:
		}
		o.mu.Lock()
		next := o.next
		o.next = nil
		o.mu.Unlock()
		if next != nil && ctx.Err() == nil {
			o.call(ctx, *next)
		}
	}
}

// call runs the line once.
func (o *onChange) call(ctx context.Context, l election.Leader) {
	bound, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastCall, cancel) })()
	cmd := exec.CommandContext(bound, "/bin/sh", "-c", o.line)
	cmd.Env = append(outerEnvironment(),
		keyVariable+"="+o.key,
		leaderVariable+"="+l.Identity(),
		leaderHostVariable+"="+l.Holder.Host,
		leaderPIDVariable+"="+pidText(l.Holder.PID),
		announcedVariable+"="+l.Payload())
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // stdout is COMMAND's
	inOwnSession(cmd)
	if err := cmd.Run(); err != nil && !reaped(err) {
		o.say.printf("--on-change: %v", err)
	}
}

// pidText is empty if nobody leads or the leader's process is not known.
func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return strconv.Itoa(pid)
}
