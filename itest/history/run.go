package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Acquisition is one call of Acquire, and what became of its lock. A time is 0 if that did not
// happen.
type Acquisition struct {
	Client string // the process
	Op     int    // its number within the process
	Key    string // what was asked for; if that is a semaphore, the slot as soon as it is granted
	Shared bool   // it was asked for shared, as for reading
	Set    int    // the number of the set that it is a part of, within the process; 0 for none

	Semaphore string // of which a permit was asked for; empty if none was
	Permits   int    // how many its process knows

	Asked    int64  // when Acquire was called
	Granted  int64  // when Acquire returned the lock
	Refused  int64  // when it returned Err
	Err      string // why
	Token    uint64 // of the lock
	Until    int64  // the last deadline seen
	Told     int64  // when the loss was told
	Loss     string // why it was lost
	Lower    int64  // when Downgrade was called
	Lowered  int64  // when it returned without an error
	Release  int64  // when Release was called
	Released int64  // when it returned
	// when Acquire and Release had to return
	AskedUntil, ReleaseUntil int64
	Unclear                  string   // the error of Release
	Writes                   []Record // to guarded stores, and the reads through their guards
	Looks                    []Record // at the counters, by a holder that shares the key

	death int64
}

// End is when the holder stopped believing that it holds the lock, at the latest. A process that
// does not run believes nothing: what counts then is the deadline that it knew.
func (a *Acquisition) End() int64 {
	end := a.Until
	for _, at := range []int64{a.Told, a.Release, a.death} {
		if at != 0 && at < end {
			end = at
		}
	}
	return max(end, a.Granted)
}

// Alone is until when the holder believed that it holds the lock alone. A holder that shares the
// lock never does.
func (a *Acquisition) Alone() int64 {
	switch {
	case a.Shared:
		return a.Granted
	case a.Lower != 0:
		return min(a.Lower, a.End())
	default:
		return a.End()
	}
}

// Stopped is when the holder was done with the lock, whatever it believed: when it released the
// lock, or when its process ended; 0 if neither happened.
func (a *Acquisition) Stopped() int64 {
	if a.Release != 0 && (a.death == 0 || a.Release < a.death) {
		return a.Release
	}
	return a.death
}

// Died reports whether the process was ended while faults went on.
func (a *Acquisition) Died() bool { return a.death != 0 }

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
	Calls        []Record       // of backends, in the order in which they began
	Marks        []Record       // of the phases
	Plans        []Record       // of the faults that may come up
	Finals       []Record       // of guarded stores
	Undone       int            // updates of the counters without a guard that another write undid
	Setup        Record         // what was run; empty if that was not recorded
	Sets         map[string]int // of how many servers each process knows, if that was recorded
	Start, End   int64          // of the first and the last record

	of map[clientKey][]int // indexes of Calls
}

// clientKey is a process that asks for a key.
type clientKey struct{ client, key string }

// CallsOf are the calls of a process for a key, in the order in which they began.
func (r *Run) CallsOf(client, key string) (calls []Record) {
	for _, i := range r.of[clientKey{client, key}] {
		calls = append(calls, r.Calls[i])
	}
	return calls
}

// Keys are those that were asked for; of a semaphore, the slots that were granted.
func (r *Run) Keys() []string {
	var keys []string
	for _, a := range r.Acquisitions {
		if (a.Semaphore == "" || a.Granted != 0) && !slices.Contains(keys, a.Key) {
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
	slices.SortFunc(granted, func(a, b *Acquisition) int {
		return cmp.Compare(a.Granted, b.Granted)
	})
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

// Read reads the logs of one run, or its archive. The last line of a log may be cut off: its
// process was killed.
func Read(paths ...string) (*Run, error) {
	var records []Record
	known := make(texts)
	for _, path := range paths {
		file, err := open(path)
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
			known.share(&r)
			records = append(records, r)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return Assemble(records), nil
}

// texts has each text once. There are few, in millions of records.
type texts map[string]string

// share makes the record use the texts that are there.
func (t texts) share(r *Record) {
	for _, text := range []*string{(*string)(&r.Kind), &r.Client, &r.Key, &r.Err, &r.Outcome,
		&r.Name, &r.Drawn, &r.Target, &r.Breaks, &r.Owner} {
		if *text == "" {
			continue
		}
		if _, there := t[*text]; !there {
			t[*text] = *text
		}
		*text = t[*text]
	}
}

// Count returns how many records of a kind there are in logs. The logs may still be written to.
func Count(kind Kind, paths ...string) (count int, err error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(text) {
			var r Record
			if json.Unmarshal(line, &r) == nil && r.Kind == kind {
				count++
			}
		}
	}
	return count, nil
}

// inTime sorts the records by time, and keeps the order of those of one moment. Records are large,
// so it moves each only once.
func inTime(records []Record) []Record {
	order := make([]int32, len(records))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(records[a].At, records[b].At), cmp.Compare(a, b))
	})
	sorted := make([]Record, len(records))
	for i, from := range order {
		sorted[i] = records[from]
	}
	return sorted
}

// Assemble makes a history of records, in any order. It is one function because it is one table:
// each kind of record has its line or two here, and nowhere else.
func Assemble(records []Record) *Run {
	records = inTime(records)
	run := &Run{Sets: make(map[string]int), of: make(map[clientKey][]int)}
	type id struct {
		client string
		op     int
	}
	byID := make(map[id]*Acquisition)
	sent := make(map[Record]bool) // that are not known to have been answered
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
		case Ask:
			a.AskedUntil, a.Shared, a.Set = r.Until, r.Shared, r.Set
			if a.Permits = r.Permits; a.Permits > 0 {
				a.Semaphore = r.Key
			}
		case Grant:
			a.Granted, a.Token, a.Until = r.At, r.Token, r.Until
			a.Key = cmp.Or(r.Key, a.Key)
		case Refuse:
			a.Refused, a.Err = r.At, r.Err
		case Extend:
			a.Until = r.Until
		case Tell:
			a.Told, a.Loss = r.At, r.Err
		case Release:
			a.Release, a.ReleaseUntil = r.At, r.Until
		case Released:
			a.Released, a.Unclear = r.At, r.Err
		case Lower:
			a.Lower = cmp.Or(a.Lower, r.At) // Downgrade is called again after an error
		case Lowered:
			if r.Err == "" {
				a.Lowered = r.At
			}
		case Write, Enter:
			a.Writes = append(a.Writes, r)
		case Look:
			a.Looks = append(a.Looks, r)
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
		case Sent:
			sent[r] = true
		case Call:
			run.Calls = append(run.Calls, r)
			answered := r
			answered.Kind, answered.Until, answered.Outcome, answered.Token = Sent, 0, "", 0
			delete(sent, answered)
		case Setup:
			run.Setup = r
		case Set:
			run.Sets[r.Client] = r.Count
		case Mark:
			run.Marks = append(run.Marks, r)
		case Plan:
			run.Plans = append(run.Plans, r)
		case Final:
			run.Finals = append(run.Finals, r)
		case Undone:
			run.Undone = r.Count
		}
	}
	for _, a := range run.Acquisitions {
		a.death = deaths[a.Client]
	}
	for client, at := range deaths {
		run.Stalls = append(run.Stalls, unrecorded(run.Faults, client, at)...)
	}
	run.Stalls = inTime(run.Stalls)
	for r := range sent {
		r.Kind, r.Until, r.Outcome = Call, r.At, Failed
		run.Calls = append(run.Calls, r)
	}
	run.Calls = inTime(run.Calls)
	for i, c := range run.Calls {
		run.of[clientKey{c.Client, c.Key}] = append(run.of[clientKey{c.Client, c.Key}], i)
	}
	return run
}

// unrecorded returns the pause in which a client was when it died, or shortly before. A client
// records a stall only when it runs again.
func unrecorded(faults []Record, client string, death int64) (stalls []Record) {
	slot, _, _ := strings.Cut(client, ".")
	for _, f := range faults {
		if f.Name == "pause" && slices.Contains(strings.Fields(f.Target), slot) &&
			f.At < death && death-f.Until < int64(2*Unnoticed) {
			stalls = append(stalls, Record{Kind: Stall, Client: client, At: f.At, Until: death})
		}
	}
	return stalls
}
