package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// workerVariable is in the environment of a worker, which is this program, started again.
const workerVariable = "HOLDFAST_BENCH_WORKER"

// job is what a worker is to do.
type job struct {
	Kind       string // a key of jobs, or "hold"
	Driver     string
	At         site
	Key        string
	Worker     int    // its number, from 1
	Board      string // file
	Goroutines int
	Hold       time.Duration
	Locks      int
	TTL        time.Duration
	Span       time.Duration
	Profile    string // file for a profile of the processor time; "" for none
}

// jobs are those that go on until the worker is ended.
var jobs = map[string]func(context.Context, *job, locker, *board) error{
	"contend":  contend,
	"handover": handover,
}

// runWorker is the main function of a worker. It ends when its standard input does, as it does with its parent.
func runWorker(description string, in io.Reader, out io.Writer) (err error) {
	var j job
	if err := json.Unmarshal([]byte(description), &j); err != nil {
		return err
	}
	ctx := context.Background()
	var b *board
	if j.Board != "" {
		if b, err = newBoard(j.Board); err != nil {
			return err
		}
	}
	var l locker
	if j.Driver != bare {
		if l, err = open(ctx, j.Driver, j.At, j.TTL); err != nil {
			return err
		}
	}
	if j.Profile != "" {
		f, err := os.Create(j.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}

	input := bufio.NewReader(in)
	start := func() error {
		fmt.Fprintln(out, "ready")
		_, err := input.ReadString('\n')
		return err
	}
	ended := make(chan error, 1)
	if j.Kind == "hold" {
		// Ready is who holds the locks, and then there is something to say.
		go func() {
			h, err := newHolding(ctx, &j, l)
			if err == nil {
				err = start()
			}
			if err != nil {
				ended <- err
				return
			}
			ended <- json.NewEncoder(out).Encode(h.measure(&j))
		}()
		return <-ended
	}
	if err := start(); err != nil {
		return err
	}
	go func() { ended <- jobs[j.Kind](ctx, &j, l, b) }()
	go func() {
		input.ReadString('\n')
		ended <- nil
	}()
	return <-ended
}

// contend has goroutines take turns on a key, for ever.
func contend(ctx context.Context, j *job, l locker, b *board) error {
	failed := make(chan error)
	for i := range j.Goroutines {
		go func() {
			b.asking.Add(1)
			for {
				begin := time.Now()
				h, err := l.acquire(ctx, j.Key)
				if err != nil {
					failed <- fmt.Errorf("acquire: %w", err)
					return
				}
				b.waited(j.Worker, i, time.Since(begin))
				b.enter(j.Worker)
				if j.Hold > 0 {
					inside := time.Now()
					waitUntil(inside.Add(j.Hold))
					b.work(j.Worker, time.Since(inside))
				}
				b.leave()
				if err := l.release(ctx, h); err != nil {
					failed <- fmt.Errorf("release: %w", err)
					return
				}
			}
		}()
	}
	return <-failed
}

// handover takes turns with the other worker, who is given the time to queue before the release.
func handover(ctx context.Context, j *job, l locker, b *board) error {
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
		// Some are quick to take again what they have just released.
		for b.holder.Load() == int64(j.Worker) {
			time.Sleep(j.Hold / 20)
		}
	}
}

// holding is many locks at once.
type holding struct {
	heap float64 // bytes for each lock
	held []held
	bare []*bareRenewal // for each node
}

func newHolding(ctx context.Context, j *job, l locker) (*holding, error) {
	keys := make([]string, j.Locks)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/%07d", j.Key, i)
	}
	h := &holding{held: make([]held, j.Locks)}
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
	// A first lock makes what is made once.
	first, err := l.acquire(ctx, j.Key)
	if err != nil {
		return nil, err
	}
	defer l.release(ctx, first)
	before := heapInUse()
	var next atomic.Int64
	// Not more at once than the processors can serve in the time that a quorum gives its nodes.
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

// measure lets the renewals happen for a while.
func (h *holding) measure(j *job) sample {
	if h.bare != nil {
		// The span holds as many renewals as intervals wherever it begins, except at one of them.
		time.Sleep(j.TTL / 6)
		for _, b := range h.bare {
			go b.run(j.TTL / 3)
		}
		time.Sleep(j.TTL / 6)
	}
	before, start := cpuTime(), time.Now()
	time.Sleep(j.Span)
	used, took := cpuTime()-before, time.Since(start)
	s := sample{
		"cpu":        used.Seconds() / took.Seconds() * 100,
		"goroutines": float64(runtime.NumGoroutine() - 1), // without the one that waits to be told to end
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

// bareRenewal renews keys with nothing around it: a script call for each, pipelined, with our client library and settings.
type bareRenewal struct {
	client rueidis.Client
	sha    string
	keys   []string
	owner  string
	lease  string
}

func newBareRenewal(ctx context.Context, j *job, address string, keys []string) (*bareRenewal, error) {
	client, err := rueidis.NewClient(ourSettings(address))
	if err != nil {
		return nil, err
	}
	r := &bareRenewal{client: client, keys: keys, owner: strings.Repeat("x", 40), lease: fmt.Sprint(j.TTL.Milliseconds())}
	if r.sha, err = client.Do(ctx, client.B().ScriptLoad().Script(renewMine).Build()).ToString(); err != nil {
		return nil, err
	}
	return r, r.inBatches(func(key string) rueidis.Completed {
		return client.B().Set().Key(key).Value(r.owner).PxMilliseconds(j.TTL.Milliseconds()).Build()
	})
}

func (r *bareRenewal) run(interval time.Duration) {
	for range time.Tick(interval) {
		if err := r.inBatches(func(key string) rueidis.Completed {
			return r.client.B().Evalsha().Sha1(r.sha).Numkeys(1).Key(key).Arg(r.owner, r.lease).Build()
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

// forAll runs f in n goroutines and returns the first error.
func forAll(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// worker is a process that does a job, as seen from the one that started it.
type worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *strings.Builder
}

// startWorkers starts processes for the job, which differ in their numbers only, and waits until all are ready. They end
// when ctx does.
func (e *env) startWorkers(ctx context.Context, n int, j job) (_ []*worker, _ *board, err error) {
	var workers []*worker
	e.files++
	j.At = e.at
	j.Board = filepath.Join(e.dir, fmt.Sprintf("board%d", e.files))
	b, err := newBoard(j.Board)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			stopWorkers(workers)
			b.close()
		}
	}()
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		j.Worker = i + 1
		if e.profile != "" {
			j.Profile = filepath.Join(e.profile, fmt.Sprintf("%s-%s-%d-%d.pprof", j.Kind, j.Driver, e.files, j.Worker))
		}
		description, err := json.Marshal(j)
		if err != nil {
			return nil, nil, err
		}
		w := &worker{cmd: exec.CommandContext(ctx, executable), stderr: new(strings.Builder)}
		w.cmd.Env = append(os.Environ(), workerVariable+"="+string(description))
		w.cmd.Stderr = w.stderr
		if w.in, err = w.cmd.StdinPipe(); err != nil {
			return nil, nil, err
		}
		out, err := w.cmd.StdoutPipe()
		if err != nil {
			return nil, nil, err
		}
		w.out = bufio.NewReader(out)
		if err := start(w.cmd); err != nil {
			return nil, nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if _, err := w.line(); err != nil {
			return nil, nil, err
		}
	}
	return workers, b, nil
}

// line reads what the worker says next.
func (w *worker) line() (string, error) {
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.in.Close()
		w.cmd.Wait()
		return "", fmt.Errorf("worker: %w: %s", err, strings.TrimSpace(w.stderr.String()))
	}
	return line, nil
}

func (w *worker) tell() { fmt.Fprintln(w.in, "go") }

// stopWorkers ends the workers in the middle of whatever they do.
func stopWorkers(workers []*worker) {
	for _, w := range workers {
		w.in.Close()
		timer := time.AfterFunc(5*time.Second, func() { w.cmd.Process.Kill() })
		defer timer.Stop()
	}
	for _, w := range workers {
		w.cmd.Wait()
	}
}

// failure is what a worker that has ended by itself had to say.
func failure(workers []*worker) error {
	for _, w := range workers {
		if text := strings.TrimSpace(w.stderr.String()); text != "" {
			return errors.New(text)
		}
	}
	return nil
}
