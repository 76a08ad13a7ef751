//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// lease is the TTL of all contenders while leaders are changed. idleLease is the TTL while requests
// are counted: holdfast's default.
const (
	lease     = 2 * time.Second
	idleLease = 30 * time.Second

	// patience bounds the wait for the next leader.
	patience = time.Minute
)

// way is how a leader ends.
type way int

const (
	resign way = iota
	terminate
	kill
	stop
	partition // cut off from the server, until another leads
)

// gaps are times without a leader.
type gaps []time.Duration

func (g gaps) String() string {
	if len(g) == 0 {
		return "-"
	}
	all := slices.Sorted(slices.Values(g))
	median, smallest, largest := all[len(all)/2], all[0], all[len(all)-1]
	return fmt.Sprintf("%s (%s to %s)", short(median), short(smallest), short(largest))
}

func short(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

type result struct {
	name     string
	gaps     map[way]gaps
	faults   map[way]int
	changes  int
	overlaps int
	// how many of these had a former leader that was stopped
	afterStop int
	requests  float64 // -1: there is no server
}

// event is a line of a candidate.
type event struct {
	from        *candidate
	end         bool
	first, last int64
}

// candidate is a process that campaigns.
type candidate struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	wire *wire // nil: there is no server
}

// fleet is three candidates.
type fleet struct {
	place   *place
	env     []string
	events  chan event
	all     []*candidate
	leader  *candidate
	since   int64                // when the leader began to act
	acting  map[*candidate]int64 // all that say that they lead, and since when
	reigns  [][2]int64
	stopped map[int64]bool // leaders that were stopped, by when they began
	changes int
}

// newFleet starts three candidates that campaign for a key that no other fleet has.
func newFleet(c contender, p *place, ttl time.Duration, key string) (*fleet, error) {
	f := &fleet{place: p, events: make(chan event, 1000), stopped: make(map[int64]bool),
		acting: make(map[*candidate]int64)}
	f.env = append(os.Environ(), kindVariable+"="+c.kind, leaseVariable+"="+ttl.String(),
		keyVariable+"="+key)
	for range 3 {
		if err := f.join(); err != nil {
			return f, err
		}
	}
	return f, nil
}

// join starts one more candidate.
func (f *fleet) join() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := &candidate{cmd: exec.Command(self)}
	address := f.place.directory
	if address == "" {
		if c.wire, err = newWire(f.place.network, f.place.server); err != nil {
			return err
		}
		address = f.place.scheme + c.wire.address()
	}
	c.cmd.Env, c.cmd.Stderr = append(slices.Clone(f.env), addressVariable+"="+address), os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := testserver.StartProcess(c.cmd); err != nil {
		return err
	}
	f.all = append(f.all, c)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			e := event{from: c}
			if n, _ := fmt.Sscanf(s.Text(), "end %d %d", &e.first, &e.last); n == 2 {
				e.end = true
			} else if n, _ := fmt.Sscanf(s.Text(), "lead %d", &e.first); n != 1 {
				continue
			}
			f.events <- e
		}
	}()
	return nil
}

// leave waits for a process that has ended, and forgets it.
func (f *fleet) leave(c *candidate) {
	c.in.Close()
	_ = c.cmd.Wait()
	if c.wire != nil {
		c.wire.close()
	}
	delete(f.acting, c)
	f.all = slices.DeleteFunc(f.all, func(o *candidate) bool { return o == c })
}

// close ends all candidates.
func (f *fleet) close() {
	for _, c := range slices.Clone(f.all) {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		f.leave(c)
	}
}

// note keeps what an event says.
func (f *fleet) note(e event) {
	if e.end {
		f.reigns = append(f.reigns, [2]int64{e.first, e.last})
		delete(f.acting, e.from)
		return
	}
	f.acting[e.from] = e.first
	f.changes++
	if e.first > f.since { // news of several candidates may come out of order
		f.leader, f.since = e.from, e.first
	}
}

// errMissed says that another candidate began to lead just before the leader was ended.
var errMissed = errors.New("another leads already")

// next waits for a leader that began after this time. It may be the same one as before: a candidate
// that has resigned campaigns again, maybe before the others do. If another candidate leads that
// began before this time, next fails with errMissed, and that one goes on. Its news came late; or
// it is one of client-go that led before the last one, lost its record to that, got it back at its
// next renewal, and has noticed nothing.
func (f *fleet) next(after int64) error {
	timeout, late := time.After(patience), time.After(3*lease)
	was, old := f.since, f.leader
	for f.since <= after {
		select {
		case e := <-f.events:
			f.note(e)
		case <-late:
			for c, since := range f.acting {
				if c != old {
					f.leader, f.since = c, since
					return errMissed
				}
			}
		case <-timeout:
			return fmt.Errorf("nobody leads within %v", patience)
		}
		if f.since != was && f.since <= after {
			return errMissed
		}
	}
	return nil
}

// settle takes the news that have come within d.
func (f *fleet) settle(d time.Duration) {
	timeout := time.After(d)
	for {
		select {
		case e := <-f.events:
			f.note(e)
		case <-timeout:
			return
		}
	}
}

// end ends the leader in some way, and returns how long nobody led. It starts a candidate in the
// place of one that is gone. If the leader did not lead any more, it fails with errMissed.
func (f *fleet) end(w way) (time.Duration, error) {
	old := f.leader
	began := time.Now().UnixNano()
	var err error
	switch w {
	case resign:
		_, err = io.WriteString(old.in, "resign\n")
	case terminate:
		err = old.cmd.Process.Signal(syscall.SIGTERM)
	case kill:
		f.reigns = append(f.reigns, [2]int64{f.since, began}) // it cannot say
		err = old.cmd.Process.Kill()
	case stop:
		f.stopped[f.since] = true
		err = old.cmd.Process.Signal(syscall.SIGSTOP)
	case partition:
		old.wire.setCut(true)
	}
	if err != nil {
		return 0, err
	}
	missed := f.next(began)
	if missed != nil && !errors.Is(missed, errMissed) {
		return 0, missed
	}
	gap := time.Duration(f.since - began)
	switch w {
	case terminate, kill:
		f.leave(old)
		err = f.join()
	case stop:
		err = old.cmd.Process.Signal(syscall.SIGCONT)
	case partition:
		old.wire.setCut(false)
	}
	if err == nil {
		err = missed
	}
	return gap, err
}

// overlaps counts pairs of leaders, one after the other, that acted at the same time, and of these
// the pairs whose former leader was stopped.
func (f *fleet) overlaps() (n, stopped int) {
	slices.SortFunc(f.reigns, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	for i := 1; i < len(f.reigns); i++ {
		if f.reigns[i][0] <= f.reigns[i-1][1] {
			n++
			if f.stopped[f.reigns[i-1][0]] {
				stopped++
			}
		}
	}
	return n, stopped
}

// measure measures one contender. It changes leaders in so many fleets side by side.
func measure(c contender, rounds, changes, fleets int, idle time.Duration) (result, error) {
	r := result{name: c.name, gaps: map[way]gaps{}, faults: map[way]int{}, requests: -1}
	place, err := c.open()
	if err != nil {
		return r, err
	}
	defer place.close()
	if err := r.measureGaps(c, place, rounds); err != nil {
		return r, err
	}
	if err := r.measureFleets(c, place, changes, fleets); err != nil {
		return r, err
	}
	if place.requests != nil {
		r.requests, err = measureIdle(c, place, idle)
	}
	return r, err
}

func (r *result) measureGaps(c contender, p *place, rounds int) error {
	f, err := newFleet(c, p, lease, "gaps")
	defer f.close()
	if err == nil {
		err = f.next(0)
	}
	for range rounds {
		for _, w := range []way{terminate, kill, stop, partition} {
			if err != nil {
				return err
			}
			if w == partition && p.directory != "" {
				continue
			}
			var gap time.Duration
			for gap, err = 0, errMissed; errors.Is(err, errMissed); {
				f.settle(time.Second) // all candidates wait
				gap, err = f.end(w)
			}
			r.gaps[w] = append(r.gaps[w], gap)
		}
	}
	return err
}

// measureFleets changes leaders in all fleets.
func (r *result) measureFleets(c contender, p *place, changes, fleets int) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var all error
	for i := range fleets {
		group.Go(func() {
			one := result{faults: map[way]int{}}
			err := one.measureChanges(c, p, (changes+i)/fleets, fmt.Sprint("changes-", i))
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
			for w, n := range one.faults {
				r.faults[w] += n
			}
			r.changes += one.changes
			r.overlaps += one.overlaps
			r.afterStop += one.afterStop
		})
	}
	group.Wait()
	return all
}

func (r *result) measureChanges(c contender, p *place, changes int, key string) error {
	if changes == 0 {
		return nil
	}
	f, err := newFleet(c, p, lease, key)
	defer f.close()
	if err == nil {
		err = f.next(0)
	}
	for err == nil && f.changes < changes {
		f.settle(20 * time.Millisecond)
		w := resign
		switch rand.IntN(20) {
		case 0:
			w = kill
		case 1:
			w = stop
		case 2:
			w = terminate
		case 3:
			if p.directory == "" {
				w = partition
			}
		}
		if _, err = f.end(w); errors.Is(err, errMissed) {
			err = nil
			continue
		}
		r.faults[w]++
	}
	f.settle(2 * lease) // the stopped ones say when they last acted
	r.changes = f.changes
	r.overlaps, r.afterStop = f.overlaps()
	return err
}

func measureIdle(c contender, p *place, span time.Duration) (float64, error) {
	f, err := newFleet(c, p, idleLease, "idle")
	defer f.close()
	if err == nil {
		err = f.next(0)
	}
	if err != nil {
		return 0, err
	}
	f.settle(2 * time.Second)
	n, err := p.requests(context.Background(), span)
	return n / span.Seconds(), err
}
