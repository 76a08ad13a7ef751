//go:build unix

package itest

import (
	"testing"

	"github.com/holdfast-go/holdfast/itest/lab"
)

// The promises on etcd, PostgreSQL and ZooKeeper, under faults, in the modes in which no assumption
// is broken. This takes less time than on Redis: servers take as long to start.
func TestCoordinatorPromisesUnderFaults(t *testing.T) {
	program := build(t)
	var r runs
	r.judge(t)
	for _, c := range lab.Coordinators {
		if c.Limits || c.Stores {
			continue
		}
		t.Run(c.Mode(), func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			c := placed(t, c, program)
			c.Duration = *durationFlag * 2 / 3
			r.run(t, c)
		})
	}
}
