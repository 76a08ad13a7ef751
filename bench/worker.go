package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"
)

// workerVariable is the environment variable that makes this program a worker.
const workerVariable = "HOLDFAST_BENCH_WORKER"

// job is the task of a worker.
type job struct {
	Kind       string // "contend", "read" or "handover", without end, or "hold"
	Driver     string
	At         site
	Key        string
	Worker     int    // its number, from 1
	Board      string // file
	Goroutines int
	Writers    int // of these, how many want the key alone where the others share it
	Hold       time.Duration
	Locks      int
	TTL        time.Duration
	Span       time.Duration
}

// runWorker is the main function of a worker. It returns when its stdin ends, which it does with
// its parent.
func runWorker(description string, in io.Reader, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(description), &j); err != nil {
		return err
	}
	b, err := newBoard(j.Board)
	if err != nil {
		return err
	}
	var l *locker
	if j.Driver != bare {
		if l, err = open(context.Background(), j.Driver, j.At, j.TTL); err != nil {
			return err
		}
	}
	return j.do(l, b, in, out)
}

// do writes "ready", and does the job after it has read a line.
func (j *job) do(l *locker, b *board, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	told := make(chan struct{})
	ended := make(chan error, 2)
	go func() {
		input := bufio.NewReader(in)
		if _, err := input.ReadString('\n'); err == nil {
			close(told)
			input.ReadString('\n')
		}
		ended <- nil
	}()
	begin := func() {
		fmt.Fprintln(out, "ready")
		<-told
	}
	go func() {
		switch j.Kind {
		case "contend":
			begin()
			ended <- contend(ctx, j, l, b)
		case "read":
			begin()
			ended <- read(ctx, j, l, b)
		case "handover":
			begin()
			ended <- handover(ctx, j, l, b)
		default:
			ended <- hold(ctx, j, l, begin, out)
		}
	}()
	return <-ended
}

// contend makes goroutines take turns on a key. It returns only an error.
func contend(ctx context.Context, j *job, l *locker, b *board) error {
	turn := func(goroutine int) error {
		begin := time.Now()
		h, err := l.acquire(ctx, j.Key)
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		b.waited(j.Worker, goroutine, time.Since(begin))
		b.enter(j.Worker)
		if j.Hold > 0 {
			inside := time.Now()
			waitUntil(inside.Add(j.Hold))
			b.work(j.Worker, time.Since(inside))
		}
		b.leave()
		if err := l.release(ctx, h); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		return nil
	}
	return inTurns(ctx, j.Goroutines, b, turn)
}

// inTurns makes n goroutines call turn over and over. It returns only an error.
func inTurns(ctx context.Context, n int, b *board, turn func(goroutine int) error) error {
	failed := make(chan error)
	for i := range n {
		go func() {
			b.asking.Add(1)
			failed <- untilOver(ctx, func() error { return turn(i) })
		}()
	}
	return <-failed
}

// handover takes turns with the other worker. It holds the key until the other one has had time to
// queue.
func handover(ctx context.Context, j *job, l *locker, b *board) error {
	for {
		h, err := l.acquire(ctx, j.Key)
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		at := now()
		if released := b.released.Swap(0); released != 0 && b.holder.Load() != int64(j.Worker) {
			if n := b.taken.Load(); n < maxSamples {
				b.samples[n].Store(int64(at) - released)
				b.taken.Store(n + 1)
			}
		}
		b.enter(j.Worker)
		time.Sleep(j.Hold)
		b.leave()
		b.released.Store(int64(now()))
		if err := l.release(ctx, h); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		// Some drivers would take the key again at once: let the other worker have it first.
		for b.holder.Load() == int64(j.Worker) {
			time.Sleep(j.Hold / 20)
		}
	}
}

// heldLocks are the locks of a worker that holds many.
type heldLocks struct {
	heap float64 // bytes for each lock
	held []held
	bare []*bareRenewal // for each node
}

func holdAll(ctx context.Context, j *job, l *locker) (*heldLocks, error) {
	keys := make([]string, j.Locks)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/%07d", j.Key, i)
	}
	h := &heldLocks{held: make([]held, j.Locks)}
	if j.Driver == bare {
		for _, address := range j.At.Redis {
			b, err := newBareRenewal(ctx, j, address, keys)
			if err != nil {
				return nil, err
			}
			h.bare = append(h.bare, b)
		}
		return h, nil
	}
	// The first lock allocates what is allocated only once, and must not count.
	first, err := l.acquire(ctx, j.Key)
	if err != nil {
		return nil, err
	}
	defer l.release(ctx, first)
	before := heapInUse()
	var next atomic.Int64
	// With more at once, the processors would be too busy to answer within the node timeout of a
	// quorum.
	err = forAll(16, func(int) error {
		for i := int(next.Add(1)) - 1; i < len(keys); i = int(next.Add(1)) - 1 {
			var err error
			if h.held[i], err = l.acquire(ctx, keys[i]); err != nil {
				return err
			}
		}
		return nil
	})
	h.heap = (heapInUse() - before) / float64(j.Locks)
	return h, err
}

// hold acquires the locks, calls begin, measures, and writes the sample.
func hold(ctx context.Context, j *job, l *locker, begin func(), out io.Writer) error {
	h, err := holdAll(ctx, j, l)
	if err != nil {
		return err
	}
	begin()
	return json.NewEncoder(out).Encode(h.measure(j))
}

// measure returns what the renewals cost during the job's span.
func (h *heldLocks) measure(j *job) sample {
	if h.bare != nil {
		// Begin half an interval away from the renewals, so that their number in the span is exact.
		time.Sleep(j.TTL / 6)
		for _, b := range h.bare {
			go b.run(j.TTL / 3)
		}
		time.Sleep(j.TTL / 6)
	}
	before, start := cpuTime(unix.RUSAGE_SELF), time.Now()
	time.Sleep(j.Span)
	used, took := cpuTime(unix.RUSAGE_SELF)-before, time.Since(start)
	s := sample{
		"cpu": used.Seconds() / took.Seconds(),
		// without the two of do
		"goroutines": float64(runtime.NumGoroutine() - 2),
	}
	if h.bare == nil {
		s["heap"] = h.heap
	}
	runtime.KeepAlive(h.held)
	return s
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

const renewMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end`

// bareRenewal only renews keys: a pipelined script call for each, on the client library and
// settings of redishold.
type bareRenewal struct {
	client rueidis.Client
	sha    string
	keys   []string
	owner  string
	lease  string
}

func newBareRenewal(ctx context.Context, j *job, address string,
	keys []string) (*bareRenewal, error) {
	client, err := rueidis.NewClient(ourSettings(address))
	if err != nil {
		return nil, err
	}
	r := &bareRenewal{client: client, keys: keys, owner: strings.Repeat("x", 40),
		lease: fmt.Sprint(j.TTL.Milliseconds())}
	if r.sha, err = client.Do(ctx,
		client.B().ScriptLoad().Script(renewMine).Build()).ToString(); err != nil {
		return nil, err
	}
	return r, r.inBatches(func(key string) rueidis.Completed {
		return client.B().Set().Key(key).Value(r.owner).PxMilliseconds(j.TTL.Milliseconds()).Build()
	})
}

func (r *bareRenewal) run(interval time.Duration) {
	for range time.Tick(interval) {
		if err := r.inBatches(func(key string) rueidis.Completed {
			return r.client.B().Evalsha().Sha1(r.sha).Numkeys(1).Key(key).Arg(r.owner,
				r.lease).Build()
		}); err != nil {
			panic(err)
		}
	}
}

func (r *bareRenewal) inBatches(command func(key string) rueidis.Completed) error {
	const size = 500
	for i := 0; i < len(r.keys); i += size {
		var batch []rueidis.Completed
		for _, key := range r.keys[i:min(i+size, len(r.keys))] {
			batch = append(batch, command(key))
		}
		for _, result := range r.client.DoMulti(context.Background(), batch...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

// startWorkers starts n workers for the job and waits until they are ready. They differ only in
// their number. They end when ctx ends.
func (e *env) startWorkers(ctx context.Context, n int,
	j job) (workers []*child, b *board, err error) {
	j.At, j.Board = e.at, e.newPath("board")
	if b, err = newBoard(j.Board); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			stopAll(workers...)
			b.close()
		}
	}()
	for i := range n {
		j.Worker = i + 1
		description, err := json.Marshal(j)
		if err != nil {
			return workers, b, err
		}
		w, err := startChild(itself(ctx, workerVariable, string(description)))
		if err != nil {
			return workers, b, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if _, err := w.line(); err != nil {
			return workers, b, err
		}
	}
	return workers, b, nil
}

func tellAll(workers []*child) {
	for _, w := range workers {
		w.tell("go")
	}
}

// failure returns the stderr of a worker that has failed, as an error.
func failure(workers []*child) error {
	for _, w := range workers {
		if text := strings.TrimSpace(w.stderr.String()); text != "" {
			return errors.New(text)
		}
	}
	return nil
}
