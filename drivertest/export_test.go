package drivertest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// RuleNames returns the names of all rules.
func RuleNames() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}

// Broken runs one rule as Run would and reports whether it failed, without failing t. The rule
// must apply to the harness.
func Broken(t *testing.T, harness Harness, name string) (failed bool, log string) {
	t.Helper()
	harness.setDefaults()
	for _, r := range rules() {
		if r.name != name {
			continue
		}
		if !r.applies(harness.Capabilities.features()) {
			t.Fatalf("rule %s does not apply to the harness", name)
		}
		harness.inTime(t, func(t *testing.T) {
			rec := &recorder{TB: t}
			rec.run(func() { harness.check(rec, r) })
			failed, log = rec.failed, rec.log.String()
		})
		return failed, log
	}
	t.Fatalf("there is no rule %s", name)
	return false, ""
}

// recorder is a test that fails for itself only.
type recorder struct {
	testing.TB // for the rest

	mu       sync.Mutex
	failed   bool
	log      strings.Builder
	cleanups []func()
}

// run runs f and then what it gave to Cleanup, each on a goroutine that FailNow may end.
func (r *recorder) run(f func()) {
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

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Context() context.Context { return r.TB.Context() }

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.log, args...)
}

func (r *recorder) FailNow()                          { r.Fail(); runtime.Goexit() }
func (r *recorder) Logf(format string, args ...any)   { r.Log(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)                 { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Logf(format, args...); r.FailNow() }
