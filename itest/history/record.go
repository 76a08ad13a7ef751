// Package history is what happened in a run of the fault laboratory: what clients did, on one clock
// for all processes, and which faults there were.
package history

import (
	"encoding/json"
	"os"
	"time"
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
	Lower    Kind = "lower"    // Downgrade was called
	Lowered  Kind = "lowered"  // it returned Err
	Look     Kind = "look"     // a read from At to Until was answered with Outcome and Value
	Write    Kind = "write"    // a write from At to Until was answered with Outcome
	// the guarded store Name was read through its guard, which was answered with Outcome; a Write
	// to such a store has its Name, too, and was followed by one to its twin without a guard
	Enter Kind = "enter"
	Stall Kind = "stall" // the process did not run, or not enough, from At to Until
	// Name was asked of Target for Owner and Key, from At to Until, and answered with Outcome; see
	// package modeltrace
	Call Kind = "call"
	// the same, recorded at At before its outcome is known; only for calls that may end a lease
	Sent Kind = "sent"
	// everything is closed; there are Count goroutines more than at the start
	Done Kind = "done"
)

// What the laboratory records.
const (
	Fault     Kind = "fault"     // the fault Name on Target, from At to Until
	Death     Kind = "death"     // the process Client has ended
	Violation Kind = "violation" // a store saw what must not happen: Err says it
	Mark      Kind = "mark"      // the run entered the phase Name
	// the fault Name may come up, as one of Count that may hit Target
	Plan Kind = "plan"
	// the run is Name, with Count servers, TTL and Guard
	Setup Kind = "setup"
	Set   Kind = "set" // the process Client locks over Count servers
	// the guarded store Name ends with Value for Key, and its twin without a guard with Twin
	Final Kind = "final"
	// other writes undid Count updates of the counters without a guard
	Undone Kind = "undone"
)

// Phases of a run, as a Mark names them. All come in this order.
const (
	Tormented = "faults" // clients lock, and the nemesis is at work
	Calm      = "calm"   // clients lock, and everything works
	Probed    = "probe"  // a separate client acquires each key once
	Closed    = "closed" // all have ended
	Ended     = "ended"  // everything was looked at
)

// Names of a Call.
const (
	Acquire = "acquire"
	Renew   = "renew"
	LetGo   = "release"
	Notice  = "notice" // no call: a notice of a grant
)

// Laboratory is the client in records of the laboratory's own process, which is also the network.
const Laboratory = "lab"

// Failed is the outcome of a call that was not answered: it may take effect at any time, or never.
// For a write to a guarded store it stands for any error but a refusal; Err says which.
const Failed = "failed"

// Slow is a time that a guarded store takes only on a busy machine: then a missing answer is no
// fault of its guard.
const Slow = time.Second

// Outcomes of a write to the counters.
const (
	Accepted   = "accepted"
	Refused    = "refused"    // a larger token had been there
	Unanswered = "unanswered" // the counters were not reached
)

// Record is one line of a file. Times are nanoseconds on the clock of [Now].
type Record struct {
	Kind Kind  `json:"kind"` // what it tells
	At   int64 `json:"at"`   // when, or from when on
	// to when; for Grant and Extend, the deadline of the lock; for Ask and Release, of the call
	Until  int64  `json:"until,omitempty"`
	Client string `json:"client,omitempty"` // the name of the process
	// number of the acquisition within the process; 0 if it concerns none
	Op int `json:"op,omitempty"`
	// of the lock, or of the slot of a permit; of a question for a permit: the semaphore; of a
	// fault: the only key that it concerns
	Key string `json:"key,omitempty"`
	// of a question and a call: the key is asked for shared, as for reading
	Shared bool `json:"shared,omitempty"`
	// of a question: the number of the set that it is a part of, within the process; 0 for none; of
	// a run: how many goroutines of each client ask for sets
	Set int `json:"set,omitempty"`
	// of a question: how many permits of the semaphore the process knows; 0 if the key is none; of
	// a run: the largest number that a client knows
	Permits int    `json:"permits,omitempty"`
	Token   uint64 `json:"token,omitempty"`   // of the lock
	Err     string `json:"err,omitempty"`     // kind of an error, or what is wrong
	Outcome string `json:"outcome,omitempty"` // of a write
	Count   int    `json:"count,omitempty"`   // of goroutines, or servers

	Name   string `json:"name,omitempty"`   // of a fault, phase or check
	Target string `json:"target,omitempty"` // of a fault: nodes, clients, or "client-node"
	// of a fault: the documented assumption that it breaks; empty: none
	Breaks string `json:"breaks,omitempty"`
	// of a fault: what was drawn, as a Plan names it
	Drawn string `json:"drawn,omitempty"`
	// of a fault: its targets may have forgotten what they stored, or have older data
	Forget bool `json:"forget,omitempty"`

	Owner string `json:"owner,omitempty"` // of a call
	Asked uint64 `json:"asked,omitempty"` // of a call: the smallest token that is asked for
	Block uint64 `json:"block,omitempty"` // of a call: how many tokens

	Newest uint64 `json:"newest,omitempty"` // if a guard refused: the token that it named
	// in a guarded store: of an Enter, what was read; of a Write, what was to be written; in the
	// counters: what is there after an accepted Write or Look
	Value uint64 `json:"value,omitempty"`
	// of a Write to a guarded store: what was written to its twin; 0: nothing
	Twin    uint64 `json:"twin,omitempty"`
	Clients int    `json:"clients,omitempty"` // of a run: how many there are
	Limits  bool   `json:"limits,omitempty"`  // of a run: faults may break assumptions
	// of a run: how many late writes are to be tried on each guarded store
	Stale int `json:"stale,omitempty"`
	// of a run: clients also ask for keys as readers
	Sharing bool `json:"sharing,omitempty"`
	// of a run: the wall clocks of clients differ
	Skewed bool `json:"skewed,omitempty"`

	// of a run: of all its locks, in nanoseconds; of a call: of the lease
	TTL   int64 `json:"ttl,omitempty"`
	Guard int64 `json:"guard,omitempty"` // of a run: the quarantine, in nanoseconds
	// of a run: by how much the lease of a process that was killed may outlive its TTL
	Linger int64 `json:"linger,omitempty"`
}

// Ends reports whether a call may end a lease, which only a release does.
func (r *Record) Ends() bool { return r.Name == LetGo }

// Log appends records to a file. Each is written at once, so records survive the process.
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
