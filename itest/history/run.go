package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Acquisition is one call of Acquire and what became of its lock. Times are 0 for what did not happen.
type Acquisition struct {
	Client string // the process
	Op     int    // its number within the process
	Key    string // what was asked for

	Asked    int64    // when Acquire was called
	Granted  int64    // when Acquire returned the lock
	Refused  int64    // when it returned Err
	Err      string   // why
	Token    uint64   // of the lock
	Until    int64    // the last deadline seen
	Told     int64    // when the loss was told
	Loss     string   // why it was lost
	Release  int64    // when Release was called
	Released int64    // when it returned
	Unclear  string   // its error
	Writes   []Record // to the guarded store

	death int64
}

// End is when the holder stopped to believe that it holds the lock, at the latest. A process that does not run
// believes nothing: what counts then is the deadline that it knew.
func (a *Acquisition) End() int64 {
	end := a.Until
	for _, at := range []int64{a.Told, a.Release, a.death} {
		if at != 0 && at < end {
			end = at
		}
	}
	return max(end, a.Granted)
}

// Lost reports whether the lock ended without its holder's doing.
func (a *Acquisition) Lost() bool { return a.Granted != 0 && (a.Told != 0 || a.Release == 0) }

// String names the acquisition.
func (a *Acquisition) String() string { return fmt.Sprintf("%s/%d", a.Client, a.Op) }

// Run is a whole history.
type Run struct {
	Acquisitions []*Acquisition // in the order in which they were asked for
	Faults       []Record       // in the order in which they began
	Stalls       []Record       // of kind Stall, and so on
	Violations   []Record       // what the laboratory itself saw
	Dones        []Record       // of clients that closed everything
	Marks        []Record       // of the phases
	Start, End   int64          // of the first and the last record
}

// Keys are those that were asked for.
func (r *Run) Keys() []string {
	var keys []string
	for _, a := range r.Acquisitions {
		if !slices.Contains(keys, a.Key) {
			keys = append(keys, a.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Granted are the acquisitions of a key that succeeded, in the order of their grants.
func (r *Run) Granted(key string) []*Acquisition {
	var granted []*Acquisition
	for _, a := range r.Acquisitions {
		if a.Key == key && a.Granted != 0 {
			granted = append(granted, a)
		}
	}
	slices.SortFunc(granted, func(a, b *Acquisition) int { return cmp.Compare(a.Granted, b.Granted) })
	return granted
}

// Mark is when the run entered a phase; 0 if it did not.
func (r *Run) Mark(name string) int64 {
	for _, m := range r.Marks {
		if m.Name == name {
			return m.At
		}
	}
	return 0
}

// Read reads the logs of one run. The last line of a log may be cut off: its process was killed.
func Read(paths ...string) (*Run, error) {
	var records []Record
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				if lines.Scan() {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
				break
			}
			records = append(records, r)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return Assemble(records), nil
}

// Assemble makes a history of records, in any order.
func Assemble(records []Record) *Run {
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	run := new(Run)
	type id struct {
		client string
		op     int
	}
	byID := make(map[id]*Acquisition)
	deaths := make(map[string]int64)
	for _, r := range records {
		if run.Start == 0 {
			run.Start = r.At
		}
		run.End = max(run.End, r.At)
		a := byID[id{r.Client, r.Op}]
		if a == nil && r.Op != 0 {
			a = &Acquisition{Client: r.Client, Op: r.Op, Key: r.Key, Asked: r.At}
			byID[id{r.Client, r.Op}] = a
			run.Acquisitions = append(run.Acquisitions, a)
		}
		switch r.Kind {
		case Grant:
			a.Granted, a.Token, a.Until = r.At, r.Token, r.Until
		case Refuse:
			a.Refused, a.Err = r.At, r.Err
		case Extend:
			a.Until = r.Until
		case Tell:
			a.Told, a.Loss = r.At, r.Err
		case Release:
			a.Release = r.At
		case Released:
			a.Released, a.Unclear = r.At, r.Err
		case Write:
			a.Writes = append(a.Writes, r)
		case Death:
			deaths[r.Client] = r.At
		case Fault:
			run.Faults = append(run.Faults, r)
		case Stall:
			run.Stalls = append(run.Stalls, r)
		case Violation:
			run.Violations = append(run.Violations, r)
		case Done:
			run.Dones = append(run.Dones, r)
		case Mark:
			run.Marks = append(run.Marks, r)
		}
	}
	for _, a := range run.Acquisitions {
		a.death = deaths[a.Client]
	}
	return run
}
