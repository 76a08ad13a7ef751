package testserver

import (
	"fmt"
	"testing"
	"time"
)

// Patience bounds every wait for a server that runs. It is long because the machine may be busy. No
// test waits for it to pass.
const Patience = 2 * time.Minute

// Eventually calls f until it returns nil, and fails the test if it does not within Patience. what
// is the state that is waited for.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s: %v", what, err)
		}
	}
}

// Not returns nil if ok, and else an error for Eventually to report.
func Not(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
