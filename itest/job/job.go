// Package job is what the laboratory tells a client process to do.
package job

import (
	"time"
)

// Variable is in the environment of a client process, and holds its Job in JSON.
const Variable = "HOLDFAST_ITEST_JOB"

// Skew is in the environment of a client process, and holds how far its wall clock is off at most. Only one that was built with
// mutants.Skewed looks at it.
const Skew = "HOLDFAST_ITEST_SKEW"

// Job is for one process.
type Job struct {
	Client   string        // its name
	Seed     uint64        // for what it draws
	URLs     []string      // of its nodes: one for a single Redis, several for Redlock
	Keys     []string      // to take turns on
	TTL      time.Duration // of its locks
	Guard    time.Duration // of Redlock
	Wait     time.Duration // the longest wait for a lock
	Work     time.Duration // what most do with it takes less
	Skew     time.Duration // see Skew
	Workers  int           // goroutines that take turns
	Probe    bool          // acquire each key once, and end
	Late     bool          // look at the lock, be told to go on, and only then write
	Log      string        // file of the history
	Register string        // socket of the guarded store
}
