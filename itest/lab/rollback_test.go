//go:build unix

package lab_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/itest/lab"
)

// A server comes back with what it had when it was saved, whatever it keeps. One that keeps nothing
// is without data after the next start.
func TestRollBack(t *testing.T) {
	for _, c := range []struct {
		persistence lab.Persistence
		later       any // the value after another start
	}{{lab.Memory, nil}, {lab.EverySec, "old"}, {lab.Always, "old"}} {
		t.Run(string(c.persistence), func(t *testing.T) {
			n := start(t, c.persistence)
			do := func(want any, command ...string) {
				t.Helper()
				if reply, err := n.Do(command...); err != nil || reply != want {
					t.Errorf("%q gives %v, %v; want %v", command, reply, err, want)
				}
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			do("OK", "SET", "k", "old")
			must(n.Save())
			do("OK", "SET", "k", "new")
			n.Kill()
			must(n.RollBack())
			do("old", "GET", "k")
			must(n.Restart())
			do(c.later, "GET", "k")
		})
	}
}
