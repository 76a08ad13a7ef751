package main

import (
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

// board is memory that a measurement's processes share. Whoever holds the lock writes to it, so that what is counted
// is counted at the moment it happens, with no messages that would take the processors' time.
type board struct {
	open   atomic.Int64 // when the measurement began; 0 when it is not on
	inside atomic.Int64 // holders at this moment
	holder atomic.Int64 // the number of the worker that was the last one, from 1

	locks    atomic.Int64 // acquisitions
	handoffs atomic.Int64 // those by another process than the one before
	overlaps atomic.Int64 // those while somebody held the lock
	asking   atomic.Int64 // goroutines that have begun to ask for the lock

	workers [maxWorkers]workerBoard

	released atomic.Int64             // when release was last called; 0 when that has been looked at
	taken    atomic.Int64             // how many samples there are
	samples  [maxSamples]atomic.Int64 // from the call of release to the next holder
}

// workerBoard is what one worker writes.
type workerBoard struct {
	last    atomic.Int64 // when it last had the lock
	longest atomic.Int64 // how long it went without the lock, at most
	_       [48]byte     // workers do not share a cache line

	worked atomic.Int64                // nanoseconds with the lock
	shares [maxShares]atomic.Int64     // acquisitions by each of the first goroutines
	waits  [stats.Buckets]atomic.Int64 // by how long they took
}

// newBoard makes a board in a file that others can open.
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

// enter is called by the worker with that number when it has got the lock.
func (b *board) enter(worker int) {
	if b.inside.Add(1) != 1 {
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

// waited is called by the worker's goroutine with that index when it has got the lock after so long.
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

// work is called by the worker when it has had the lock for so long.
func (b *board) work(worker int, d time.Duration) {
	if b.open.Load() != 0 {
		b.workers[worker-1].worked.Add(int64(d))
	}
}

// note takes account of a time at which the worker had the lock, or the measurement ended.
func (b *board) note(index int, open, at int64) {
	w := &b.workers[index]
	if gap := at - max(w.last.Load(), open); gap > w.longest.Load() {
		w.longest.Store(gap)
	}
	w.last.Store(at)
}

// leave is called before the lock is released.
func (b *board) leave() { b.inside.Add(-1) }

// begin starts a measurement.
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

// end ends a measurement by the first n workers. It returns the longest time that one of them went without the lock.
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

// shared returns the waits of the first n workers, the shares of their first m goroutines, and for how long they had
// the lock, in the measurement that has ended.
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

// boardCount is the state of the counters at one time.
type boardCount struct {
	at              time.Duration
	locks, handoffs float64
}

func (b *board) count() boardCount {
	return boardCount{now(), float64(b.locks.Load()), float64(b.handoffs.Load())}
}
