package redishold_test

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

const (
	// contenderEnv makes the test binary a process that contends: the lock's URL, the store's
	// address and how many turns a run may have, separated by newlines.
	contenderEnv = "REDISHOLD_TEST_CONTENDER"

	// contentionEnv is for how long they contend, as time.ParseDuration reads it. Default
	// contentionSpan.
	contentionEnv  = "HOLDFAST_CONTENTION"
	contentionSpan = 10 * time.Second

	// contentionTTL is short, so that a process can be paused for longer many times.
	contentionTTL = 500 * time.Millisecond
)

// history is what a process reports when it has ended.
type history struct {
	Turns []guardedTurn
	Stale int // turns that were over before their work was, as a pause makes them
	// requests that were not answered in time, as a pause or a busy machine makes them
	Mute  int
	Wrong []string // what must not happen

	begun func() // tells of a turn
}

// guardedTurn is a span in which a lock was valid, on the clock that all processes share.
type guardedTurn struct {
	Token         holdfast.Token
	Entered, Left time.Duration
}

// Processes with several goroutines each increment a counter on another server: they read it, and
// write what they read plus one. That server knows nothing of locks, but refuses a token smaller
// than the largest it has seen. Meanwhile one process after another is paused for longer than its
// lease, in the middle of anything it does. Two processes have local handoff, two have not.
// Invariants:
//
//   - no two turns overlap, as far as they were valid;
//   - each has a larger token than the one before;
//   - a token is refused only to who finds its lock lost, too;
//   - no increment that was accepted is lost.
//
// With such a short lease a request has a few dozen milliseconds. A request that is not answered by
// then is only a failed try: whatever it has done must not break an invariant.
func TestProcessesGuardACounter(t *testing.T) {
	t.Parallel()
	span := contentionSpan
	if text := os.Getenv(contentionEnv); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", contentionEnv, err)
		}
	}
	server, store := redistest.Start(t), redistest.Start(t)
	processes := make([]*contender, 4)
	for i := range processes {
		processes[i] = startContender(t, server.URL(), store.Addr, []int{1, 64}[i%2])
	}
	for i, p := range processes {
		if err := p.out.Decode(new(bool)); err != nil {
			t.Fatalf("process %d has not had its first turn: %v", i, err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	end := time.After(span)
	for over := false; !over; {
		paused := processes[random.IntN(len(processes))].cmd.Process
		pause := contentionTTL + time.Duration(random.Int64N(int64(contentionTTL)/2))
		testserver.Freeze(paused)
		select {
		case <-time.After(pause):
		case <-end:
			over = true
		}
		paused.Signal(syscall.SIGCONT)
		if over {
			break
		}
		select {
		case <-time.After(contentionTTL / 2):
		case <-end:
			over = true
		}
	}

	for _, p := range processes {
		p.in.Close()
	}
	var turns []guardedTurn
	accepted := 0
	for i, p := range processes {
		h := p.report(t)
		for _, wrong := range h.Wrong {
			t.Errorf("process %d: %s", i, wrong)
		}
		if len(h.Turns) == 0 {
			t.Errorf("process %d had no turn", i)
		}
		t.Logf(
			"process %d: %d turns, %d that were over before their work was, %d requests without an answer",
			i, len(h.Turns), h.Stale, h.Mute)
		turns = append(turns, h.Turns...)
		accepted += len(h.Turns)
	}
	slices.SortFunc(turns, func(a, b guardedTurn) int { return cmp.Compare(a.Entered, b.Entered) })
	for i := 1; i < len(turns); i++ {
		before, turn := turns[i-1], turns[i]
		if turn.Entered < before.Left {
			t.Fatalf("token %d was valid until %v, and token %d from %v", before.Token, before.Left,
				turn.Token, turn.Entered)
		}
		if turn.Token <= before.Token {
			t.Fatalf("after token %d came %d", before.Token, turn.Token)
		}
	}
	if count := store.String(t, "HGET", "counter", "count"); count != strconv.Itoa(accepted) {
		t.Errorf("the counter is %s after %d increments", count, accepted)
	}
}

// now is the time on a clock that all processes share and that nobody sets.
func now() time.Duration {
	var reading unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &reading); err != nil {
		panic(err) // every Unix has it
	}
	return time.Duration(reading.Nano())
}

// contender is a process that contends.
type contender struct {
	cmd *exec.Cmd
	in  io.Closer
	out *gob.Decoder // true at its first turn, and its history in the end
}

func startContender(t *testing.T, url, store string, run int) *contender {
	t.Helper()
	p := &contender{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(),
		contenderEnv+"="+strings.Join([]string{url, store, strconv.Itoa(run)}, "\n"))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, gob.NewDecoder(out)
	if err := testserver.StartProcess(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// report waits for the end of the process, which has been told to end, and returns its report.
func (p *contender) report(t *testing.T) (h history) {
	t.Helper()
	if err := p.out.Decode(&h); err != nil {
		t.Errorf("report of a process: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("end of a process: %v", err)
	}
	return h
}

// contend is the main function of such a process. It ends when its standard input does.
func contend(order string) error {
	part := strings.Split(order, "\n")
	turns, err := strconv.Atoi(part[2])
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := redishold.Open(opening, part[0])
	if err != nil {
		return err
	}
	defer b.Close()
	locker, err := holdfast.New(b, holdfast.WithTTL(contentionTTL),
		holdfast.WithCohort(turns, 50*time.Millisecond))
	if err != nil {
		return err
	}
	defer locker.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var all sync.WaitGroup
	out := gob.NewEncoder(os.Stdout)
	begun := sync.OnceFunc(func() { out.Encode(true) })
	histories := make([]history, 4)
	for i := range histories {
		histories[i].begun = begun
		all.Go(func() { histories[i].contend(ctx, locker, part[1]) })
	}
	all.Wait()
	var whole history
	for _, h := range histories {
		whole.Turns = append(whole.Turns, h.Turns...)
		whole.Stale += h.Stale
		whole.Mute += h.Mute
		whole.Wrong = append(whole.Wrong, h.Wrong...)
	}
	return out.Encode(whole)
}

// guardedStore keeps a counter, which changes only with a token that is not smaller than those
// before. With one argument it reads, with two it writes the second. It returns the counter, or -1.
const guardedStore = `
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
	return -1
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if ARGV[2] then
	redis.call('HSET', KEYS[1], 'count', ARGV[2])
end
return tonumber(redis.call('HGET', KEYS[1], 'count') or 0)`

func (h *history) contend(ctx context.Context, locker *holdfast.Locker, address string) {
	store, err := (&redistest.Server{Addr: address}).Dial()
	if err != nil {
		h.wrong("store: %v", err)
		return
	}
	defer store.Close()
	for {
		lock, err := locker.Acquire(ctx, "counter")
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			h.failed("Acquire", err)
			continue
		}
		h.turn(lock, store)
		// A loss is not an error of the release.
		if err := lock.Release(context.Background()); err != nil &&
			!errors.Is(err, holdfast.ErrLost) {
			h.failed("Release", err)
		}
	}
}

// turn increments the counter.
func (h *history) turn(lock *holdfast.Lock, store *redistest.Client) {
	entered := now()
	if lock.Err() != nil {
		h.Stale++
		return
	}
	token := lock.Token().String()
	// What is valid at least, even if the lock is lost before anybody looks at it again.
	left := entered + time.Until(lock.Deadline())
	count, err := store.Try("EVAL", guardedStore, "1", "counter", token)
	if n, ok := count.(int64); err == nil && ok && n >= 0 {
		count, err = store.Try("EVAL", guardedStore, "1", "counter", token,
			strconv.FormatInt(n+1, 10))
	}
	if err != nil {
		h.wrong("store: %v", err)
		return
	}
	accepted := count != int64(-1)
	done := now()
	// The lock that has no error now was valid until then.
	lost := lock.Err()
	if lost == nil {
		left = done
	}
	switch {
	case accepted:
		h.Turns = append(h.Turns, guardedTurn{lock.Token(), entered, max(entered, min(done, left))})
		h.begun()
	case lost == nil:
		h.wrong("token %s was refused while its lock was valid", token)
	default:
		h.Stale++
	}
}

// failed notes an error of the lock.
func (h *history) failed(call string, err error) {
	if errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, holdfast.ErrUnavailable) {
		h.Mute++
		return
	}
	h.wrong("%s: %v", call, err)
}

func (h *history) wrong(format string, args ...any) {
	h.Wrong = append(h.Wrong, fmt.Sprintf(format, args...))
}
