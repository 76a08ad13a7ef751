// Package faketb has a testing.TB that may fail: it records the failure, and the test around it
// goes on. With it the tests of a test suite show that the suite notices broken code.
package faketb

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Recorder is a TB that keeps its failures to itself. It leaves all else to its TB, which is that
// of the test around it.
type Recorder struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	log      strings.Builder
	cleanups []func()
}

// Run runs f and then what it gave to Cleanup, each on a goroutine that FailNow may end.
func (r *Recorder) Run(f func()) {
	for f != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
		f = nil
		r.mu.Lock()
		if n := len(r.cleanups); n > 0 {
			f, r.cleanups = r.cleanups[n-1], r.cleanups[:n-1]
		}
		r.mu.Unlock()
	}
}

// Cleanup has Run call f at its end.
func (r *Recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Fail marks the recorder as failed, and not the test around it.
func (r *Recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Failed reports whether it has failed so far.
func (r *Recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Log keeps a line for Text.
func (r *Recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.log, args...)
}

// Text returns all that was logged so far, a line each.
func (r *Recorder) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// FailNow fails, and ends the goroutine that Run has started.
func (r *Recorder) FailNow() { r.Fail(); runtime.Goexit() }

// Logf is Log with a format.
func (r *Recorder) Logf(format string, args ...any) { r.Log(fmt.Sprintf(format, args...)) }

// Error is Log and Fail.
func (r *Recorder) Error(args ...any) { r.Log(args...); r.Fail() }

// Errorf is Logf and Fail.
func (r *Recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }

// Fatal is Log and FailNow.
func (r *Recorder) Fatal(args ...any) { r.Log(args...); r.FailNow() }

// Fatalf is Logf and FailNow.
func (r *Recorder) Fatalf(format string, args ...any) { r.Logf(format, args...); r.FailNow() }
