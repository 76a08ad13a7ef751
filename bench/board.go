package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

const (
	maxWorkers = 8
	maxShares  = 64
	maxSamples = 1 << 14
)

// board is memory that the processes of a measurement share. The holder of the lock writes to it.
// So counts are exact at any moment, without messages that would cost processor time.
type board struct {
	open   atomic.Int64 // when the measurement began; 0 outside of one
	inside atomic.Int64 // holders now
	holder atomic.Int64 // the worker that was the last holder; numbers begin with 1

	locks    atomic.Int64 // acquisitions
	handoffs atomic.Int64 // acquisitions by another process than the last
	overlaps atomic.Int64 // acquisitions while somebody held the lock
	asking   atomic.Int64 // goroutines that have begun to ask for the lock

	workers [maxWorkers]workerBoard

	// when release was last called; 0 when the next holder has taken it
	released atomic.Int64
	taken    atomic.Int64             // the number of samples
	samples  [maxSamples]atomic.Int64 // from the call of release to the next holder
}

// workerBoard is what one worker writes.
type workerBoard struct {
	last    atomic.Int64 // when it had the lock last
	longest atomic.Int64 // its longest time without the lock
	readers atomic.Int64 // holders now that share the lock
	reads   atomic.Int64 // shared acquisitions
	_       [32]byte     // so that workers do not share a cache line

	worked atomic.Int64                // nanoseconds with the lock
	shares [maxShares]atomic.Int64     // acquisitions by goroutine, for the first ones
	waits  [stats.Buckets]atomic.Int64 // acquisitions by the time that they took
}

// newBoard maps the board in the file at path, which it creates if it is missing.
func newBoard(path string) (*board, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const size = int(unsafe.Sizeof(board{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return (*board)(unsafe.Pointer(&memory[0])), nil
}

func (b *board) close() {
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(b)), unsafe.Sizeof(board{})))
}

// enter notes that the worker has acquired the lock.
func (b *board) enter(worker int) {
	if b.inside.Add(1) != 1 || b.sharing() {
		b.overlaps.Add(1)
	}
	b.locks.Add(1)
	if b.holder.Swap(int64(worker)) != int64(worker) {
		b.handoffs.Add(1)
	}
	if open := b.open.Load(); open != 0 {
		b.note(worker-1, open, int64(now()))
	}
}

// waited notes that a goroutine of the worker has acquired the lock after d.
func (b *board) waited(worker, goroutine int, d time.Duration) {
	if b.open.Load() == 0 {
		return
	}
	w := &b.workers[worker-1]
	if goroutine < maxShares {
		w.shares[goroutine].Add(1)
	}
	w.waits[stats.Bucket(d)].Add(1)
}

// sharing reports whether somebody holds the lock together with others.
func (b *board) sharing() bool {
	for i := range b.workers {
		if b.workers[i].readers.Load() != 0 {
			return true
		}
	}
	return false
}

// work notes that the worker has worked with the lock for d.
func (b *board) work(worker int, d time.Duration) {
	if b.open.Load() != 0 {
		b.workers[worker-1].worked.Add(int64(d))
	}
}

// note updates the longest time without the lock: the worker with that index had the lock at at.
func (b *board) note(index int, open, at int64) {
	w := &b.workers[index]
	if gap := at - max(w.last.Load(), open); gap > w.longest.Load() {
		w.longest.Store(gap)
	}
	w.last.Store(at)
}

// enterReader notes that the worker has acquired the lock together with others.
func (b *board) enterReader(worker int) {
	w := &b.workers[worker-1]
	w.readers.Add(1)
	if b.inside.Load() != 0 {
		b.overlaps.Add(1)
	}
	w.reads.Add(1)
}

// leave notes that the holder is about to release the lock.
func (b *board) leave() { b.inside.Add(-1) }

// leaveReader notes that a holder of the worker that shares the lock is about to release it.
func (b *board) leaveReader(worker int) { b.workers[worker-1].readers.Add(-1) }

// begin starts a measurement and returns the counters.
func (b *board) begin() boardCount {
	for i := range b.workers {
		w := &b.workers[i]
		w.longest.Store(0)
		w.worked.Store(0)
		for j := range w.shares {
			w.shares[j].Store(0)
		}
		for j := range w.waits {
			w.waits[j].Store(0)
		}
	}
	c := b.count()
	b.open.Store(int64(c.at))
	return c
}

// end ends a measurement. It returns the counters, and the longest time that one of the first n
// workers went without the lock.
func (b *board) end(n int) (boardCount, time.Duration) {
	c := b.count()
	open := b.open.Swap(0)
	longest := int64(0)
	for i := range n {
		w := &b.workers[i]
		longest = max(longest, w.longest.Load(), int64(c.at)-max(w.last.Load(), open))
	}
	return c, time.Duration(longest)
}

// shared returns results of the measurement that has ended: the waits of the first n workers, the
// shares of their first m goroutines, and how long the workers have worked with the lock.
func (b *board) shared(n, m int) (waits stats.Histogram, shares []float64, worked time.Duration) {
	for i := range n {
		w := &b.workers[i]
		for j := range w.waits {
			waits[j] += w.waits[j].Load()
		}
		for j := range min(m, maxShares) {
			shares = append(shares, float64(w.shares[j].Load()))
		}
		worked += time.Duration(w.worked.Load())
	}
	return waits, shares, worked
}

// boardCount is the counters at one time.
type boardCount struct {
	at              time.Duration
	locks, handoffs float64
}

func (b *board) count() boardCount {
	locks := b.locks.Load()
	for i := range b.workers {
		locks += b.workers[i].reads.Load()
	}
	return boardCount{now(), float64(locks), float64(b.handoffs.Load())}
}

// awaitAsking waits until n goroutines have asked for the key, for 30 seconds at most.
func (b *board) awaitAsking(ctx context.Context, n int) error {
	deadline := time.Now().Add(30 * time.Second)
	for b.asking.Load() < int64(n) {
		if time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d goroutines have asked for the key", b.asking.Load(), n)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// watch waits for span. If nobody has acquired the lock by then, it waits on, for grace at most: on
// a busy machine the workers may not have run during a short span.
func (b *board) watch(ctx context.Context, from boardCount, span time.Duration) error {
	if err := sleep(ctx, span); err != nil {
		return err
	}
	for limit := time.Now().Add(grace); b.count().locks == from.locks && time.Now().Before(limit); {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
