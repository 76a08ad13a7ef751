package holdfast

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// maxSideBySide is how many keys of a set are asked for, renewed or released at the same time.
const maxSideBySide = 256

// sideBySide calls f with 0 to n-1 in parallel, and returns when all calls have returned. If calls
// panic, the first panic goes on in the caller's goroutine, without its stack, so that the caller
// can recover from it. If a call ends its goroutine, the caller's goroutine ends too.
func sideBySide(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var (
		wait   sync.WaitGroup
		next   atomic.Int64
		fault  atomic.Pointer[any]
		exited atomic.Bool
	)
	call := func(i int) {
		returned := false
		defer func() {
			if p := recover(); p != nil {
				fault.CompareAndSwap(nil, &p)
			} else if !returned {
				exited.Store(true)
			}
		}()
		f(i)
		returned = true
	}
	for range min(n, maxSideBySide) {
		wait.Go(func() {
			growStack()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				call(i)
			}
		})
	}
	wait.Wait()
	switch p := fault.Load(); {
	case p != nil:
		panic(*p)
	case exited.Load():
		runtime.Goexit()
	}
}

// growStack gives a new goroutine the stack that a request to a backend needs. A stack begins
// small. If it grew on the way through a client library, all frames on it would be copied, twice:
// that was a quarter of the processor time of a set.
//
//go:noinline
func growStack() {
	var space [4 << 10]byte
	runtime.KeepAlive(&space)
}
