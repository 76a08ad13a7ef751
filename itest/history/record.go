// Package history is what happened in a run of the fault laboratory: what clients did, on one clock for all processes, and which
// faults there were.
package history

import (
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says what a Record tells.
type Kind string

// What clients record. Op is the number of the acquisition within its process.
const (
	Ask      Kind = "ask"      // Acquire was called for Key
	Grant    Kind = "grant"    // it returned a lock with Token, valid until Until
	Refuse   Kind = "refuse"   // it returned Err
	Extend   Kind = "extend"   // the lock is valid until Until by now
	Tell     Kind = "tell"     // Done was closed, for the reason Err
	Release  Kind = "release"  // Release was called
	Released Kind = "released" // it returned Err
	Write    Kind = "write"    // a write from At to Until was answered with Outcome
	Stall    Kind = "stall"    // the process did not run, or not enough, from At to Until
	Done     Kind = "done"     // everything is closed; there are Count goroutines more than at the start
)

// What the laboratory records.
const (
	Fault     Kind = "fault"     // from At to Until, on Target
	Death     Kind = "death"     // the process Client has ended
	Violation Kind = "violation" // the register saw what must not be, told in Err
	Mark      Kind = "mark"      // the run entered the phase Name
)

// Outcomes of a write to the register.
const (
	Accepted   = "accepted"
	Refused    = "refused"    // a larger token had been there
	Unanswered = "unanswered" // the register was not reached
)

// Record is one line of a file. Times are nanoseconds on the clock of [Now].
type Record struct {
	Kind    Kind   `json:"kind"`              // what it tells
	At      int64  `json:"at"`                // when, or from when on
	Until   int64  `json:"until,omitempty"`   // to when; for Grant and Extend, the deadline
	Client  string `json:"client,omitempty"`  // the process
	Op      int    `json:"op,omitempty"`      // number of the acquisition within the process; 0 if it concerns none
	Key     string `json:"key,omitempty"`     // of the lock
	Token   uint64 `json:"token,omitempty"`   // of the lock
	Err     string `json:"err,omitempty"`     // kind of an error, or what is wrong
	Outcome string `json:"outcome,omitempty"` // of a write
	Count   int    `json:"count,omitempty"`   // of goroutines

	Name   string `json:"name,omitempty"`   // of a fault, phase or check
	Target string `json:"target,omitempty"` // of a fault: nodes, clients, or "client-node"
	Breaks string `json:"breaks,omitempty"` // of a fault: the documented assumption that it breaks; empty if none
}

// Now is the time since the host was booted. All its processes have the same, and nobody can set it.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux that Go runs on has the clock
	}
	return now.Nano()
}

// Log appends records to a file. Each is written at once, so what was recorded survives the process.
type Log struct {
	file   *os.File
	client string
}

// Create opens a log whose records are client's.
func Create(path, client string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Log{file: file, client: client}, nil
}

// Add appends a record, and sets its time if it has none. It may be called concurrently.
func (l *Log) Add(r Record) {
	if r.At == 0 {
		r.At = Now()
	}
	if r.Client == "" {
		r.Client = l.client
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // there is nothing in a Record that could not be written
	}
	// One call for the line: the kernel keeps lines of concurrent calls apart.
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Seconds shows a time as seconds after another one.
func Seconds(at, since int64) float64 { return time.Duration(at - since).Seconds() }
