package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/quorum"
)

// Options are the flags of holdfast run that tests set.
type Options struct {
	TTL, Wait, Grace time.Duration
	NoWait, Quiet    bool
	Shared           bool
	Names            []string // default: name
	Permits          int
}

// RunOn runs a shell script under a lock, as holdfast run does, on the backend that open returns.
func RunOn(stderr io.Writer, open func(context.Context) (driver.Backend, error), o Options,
	script string) (code int, err error) {
	j := &job{
		names:   []string{"name"},
		path:    "/bin/sh",
		args:    []string{"sh", "-c", script},
		address: openFunc(open),
		ttl:     o.TTL,
		try:     o.NoWait,
		wait:    o.Wait,
		shared:  o.Shared,
		grace:   o.Grace,
		label:   "sh",
		quiet:   o.Quiet,
		permits: o.Permits,
		record:  new(record),

		busyCode: codeBusy,
	}
	if o.Names != nil {
		j.names = o.Names
	}
	err = j.run(streams{out: io.Discard, err: stderr})
	return exitCode(err), err
}

type openFunc func(context.Context) (driver.Backend, error)

func (openFunc) String() string               { return "test:" }
func (openFunc) CheckTTL(time.Duration) error { return nil }
func (openFunc) Prefix() string               { return "pre/" }

func (f openFunc) Open(ctx context.Context, _ func(quorum.NodeEvent)) (driver.Backend, error) {
	return f(ctx)
}

func (f openFunc) Look(ctx context.Context) (driver.Backend, error) { return f(ctx) }

// ListOn runs holdfast ls on the backend that open returns.
func ListOn(out, stderr io.Writer, open func(context.Context) (driver.Backend, error)) error {
	s := streams{out: out, err: stderr}
	v, err := openView(openFunc(open), s, time.Minute, false, false)
	if err != nil {
		return err
	}
	defer v.close()
	return new(lsFlags).list(v, s, "")
}

// DeadlocksOn runs holdfast deadlocks on the backend that open returns.
func DeadlocksOn(out io.Writer, open func(context.Context) (driver.Backend, error)) (code int,
	err error) {
	s := streams{out: out, err: io.Discard}
	v, err := openView(openFunc(open), s, time.Minute, true, false)
	if err != nil {
		return exitCode(err), err
	}
	defer v.close()
	err = new(deadlockFlags).deadlocks(v, s, "")
	return exitCode(err), err
}

// LeaksOn runs holdfast leaks on the backend that open returns.
func LeaksOn(out io.Writer, open func(context.Context) (driver.Backend, error)) error {
	s := streams{out: out, err: io.Discard}
	v, err := openView(openFunc(open), s, time.Minute, true, false)
	if err != nil {
		return err
	}
	defer v.close()
	return new(leakFlags).leaks(v, s, "")
}

// ExamineOn runs holdfast doctor on the backend that open returns.
func ExamineOn(out io.Writer, open func(context.Context) (driver.Backend, error), json bool) error {
	s := streams{out: out, err: io.Discard}
	v, err := openView(openFunc(open), s, time.Minute, false, false)
	if err != nil {
		return err
	}
	defer v.close()
	f := &lookFlags{timeout: time.Minute, json: json}
	return f.examine(v, s)
}

// ReleaseOn runs holdfast release --yes on the backend that open returns.
func ReleaseOn(stderr io.Writer, open func(context.Context) (driver.Backend, error), name,
	owner string) error {
	s := streams{out: io.Discard, err: stderr}
	v, err := openView(openFunc(open), s, time.Minute, false, true)
	if err != nil {
		return err
	}
	defer v.close()
	f := &releaseFlags{lookFlags: lookFlags{timeout: time.Minute}, yes: true}
	return f.release(v, s, name, look.Acquisition{Owner: owner})
}

// Nodes is nodes, and keeps the lines that it says.
type Nodes struct {
	nodes
	Said []string
}

// NewNodes returns Nodes that append to Said.
func NewNodes() *Nodes {
	n := new(Nodes)
	n.say = func(format string, args ...any) {
		n.Said = append(n.Said, fmt.Sprintf(format, args...))
	}
	return n
}

// Observe is observe, for several events.
func (n *Nodes) Observe(events ...quorum.NodeEvent) {
	for _, e := range events {
		n.observe(e)
	}
}

// Begin is begin.
func (n *Nodes) Begin() { n.begin() }

// End is end.
func (n *Nodes) End(s quorum.Status) { n.end(s) }

// Cleanup is cleanup.
type Cleanup struct{ *cleanup }

// NewCleanup is newCleanup.
func NewCleanup() Cleanup { return Cleanup{newCleanup()} }

// Heed is heed.
func (c Cleanup) Heed(signals <-chan os.Signal) { c.heed(signals) }

// Bounded is bounded.
func (c Cleanup) Bounded(f func()) { c.bounded(f) }

// End is end.
func (c Cleanup) End() { c.end() }

// Message is message.
func Message(text string, names ...string) string { return message(text, names...) }

// Stood returns what the status file says of a candidate after each step: it hears of another
// leader, leads, hears that it does, stands by, leads again, hears that nobody leads, hears of
// another leader, and stands by.
func Stood(other, leader election.Leader) (states, leaders []string, err error) {
	s, err := newStanding("", "name", leader.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	for _, step := range []func(){func() { s.ledBy(other) },
		func() { s.leads(leader.Token) }, func() { s.ledBy(leader) }, s.standsBy,
		func() { s.leads(leader.Token + 1) }, func() { s.ledBy(election.Leader{}) },
		func() { s.ledBy(other) }, s.standsBy} {
		step()
		states, leaders = append(states, s.get().State), append(leaders, s.get().Leader)
	}
	return states, leaders, nil
}

// CandidateOf returns the options of a candidate that announces a text, and how others see it.
func CandidateOf(l *holdfast.Locker, label, announce string) (o []election.Option, self string,
	err error) {
	f := leadFlags{announce: announce}
	o, err = f.options(l, "name", label)
	return o, f.self(label), err
}

// ManText is manText.
var ManText = manText
