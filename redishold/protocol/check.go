package protocol

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// clockTolerance is how far a server's clock may be from this process's before Check reports it.
// The time of the request is added.
const clockTolerance = time.Second

// Check looks at every server that serves slots for what weakens the promises, as [driver.Checker]
// describes, and changes nothing. If it cannot ask a server, it returns an error. The codes are:
//
//   - role: the server is a replica and takes no writes.
//   - eviction-policy: the server may drop locks that are held when its memory runs out.
//   - replicas: one may take over that has not heard of the last locks.
//   - persistence: the server forgets all locks in a restart. Under a restart guard this is only a
//     note.
//   - fsync: the server may forget the last locks in a power failure.
//     Both are failures of a server that the operator calls durable: clients refuse it.
//   - clock: the server's clock differs from this process's by more than a second.
//   - blind: under a restart guard, a durable server cannot tell when it loses its data.
//   - not-checked: the user may not read the configuration.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	conns, err := b.transport.All(ctx)
	if err != nil {
		return nil, err
	}
	var findings []driver.Finding
	for _, conn := range conns {
		e := examination{node: nameOf(conn), guarded: b.guard.Load() > 0,
			durable: b.options.Durable}
		if server := conn.Server(); server != nil {
			e.blind = server.Blind && server.Durable
		}
		if err := e.look(ctx, b, conn); err != nil {
			return nil, err
		}
		e.judge()
		findings = append(findings, e.findings...)
	}
	slices.SortStableFunc(findings, func(a, b driver.Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
	return findings, nil
}

// examination is the check of one server.
type examination struct {
	node     string
	guarded  bool // a restart guard is set
	blind    bool // nothing shows that the server has lost its data
	durable  bool // the operator says that it loses none
	info     map[string]string
	settings map[string]string // nil if they may not be read
	refusal  string            // then, why
	offset   time.Duration     // how far its clock is ahead, at least; negative for behind
	findings []driver.Finding
}

// look asks the server.
func (e *examination) look(ctx context.Context, b *Backend, conn Conn) error {
	replies := make([]Reply, 2)
	asked := time.Now()
	if err := conn.Do(ctx, []Command{{"INFO"}, {"TIME"}}, replies); err != nil {
		return withoutEffect(err)
	}
	answered := time.Now()
	for _, reply := range replies {
		if reply.Kind == Failure {
			return b.failure(conn, reply, false)
		}
	}
	e.info = infoFields(replies[0].Str)
	e.offset = outside(clockOf(replies[1]), asked, answered)

	// This is sent by itself, because it may be forbidden.
	settings := make([]Reply, 2)
	if err := conn.Do(ctx, []Command{{"CONFIG", "GET", "*append*"}, {"CONFIG", "GET", "save"}},
		settings); err != nil {
		return withoutEffect(err)
	}
	e.settings = make(map[string]string)
	for _, reply := range settings {
		if reply.Kind == Failure {
			e.settings, e.refusal = nil, ServerFailure("", reply.Str, false).Err.Error()
			return nil
		}
		for i := 0; i+1 < len(reply.List); i += 2 {
			e.settings[reply.List[i].Str] = reply.List[i+1].Str
		}
	}
	return nil
}

// clockOf reads the reply to TIME. It returns the zero Time for any other reply.
func clockOf(reply Reply) time.Time {
	if len(reply.List) != 2 {
		return time.Time{}
	}
	seconds, err1 := strconv.ParseInt(reply.List[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.List[1].Str, 10, 64)
	if err1 != nil || err2 != nil {
		return time.Time{}
	}
	return time.Unix(seconds, micros*1000)
}

// outside returns by how much a clock that was read between two moments shows a time outside of
// them. The result is negative if the clock shows a time before them.
func outside(clock, from, to time.Time) time.Duration {
	// Without the monotonic readings: this compares wall clocks.
	switch from, to = from.Round(0), to.Round(0); {
	case clock.IsZero():
		return 0
	case clock.Before(from):
		return clock.Sub(from)
	case clock.After(to):
		return clock.Sub(to)
	}
	return 0
}

func (e *examination) find(severity driver.Severity, code, summary, advice string) {
	e.findings = append(e.findings, driver.Finding{Severity: severity, Code: code, Node: e.node,
		Summary: summary, Advice: advice})
}

// judge makes findings from the server's answers.
func (e *examination) judge() {
	if e.info["role"] == "slave" {
		e.find(driver.Failure, "role", fmt.Sprintf("The server is a read-only replica of %s:%s.",
			e.info["master_host"], e.info["master_port"]),
			"Use the primary, or redis+sentinel:// if that changes.")
	} else if n := e.info["connected_slaves"]; n != "" && n != "0" {
		e.find(driver.Warning, "replicas", "The server has replicas ("+n+
			"), and one that takes over may not have heard of the last locks.",
			"Check fencing tokens where it matters, or use independent servers without replicas and redlock://.")
	}
	e.judgeMemory()
	e.judgeDisk()
	if e.blind && e.guarded {
		e.find(driver.Warning, "blind",
			"The user may not run CLIENT TRACKING, so a durable server cannot tell that somebody has emptied it.",
			"Allow +client|tracking.")
	}
	if e.settings == nil {
		e.find(driver.Note, "not-checked", "The configuration could not be read: "+e.refusal+".",
			"Allow CONFIG GET to see more of it.")
	}
	if e.offset.Abs() > clockTolerance {
		where := "ahead of"
		if e.offset < 0 {
			where = "behind"
		}
		e.find(driver.Warning, "clock", fmt.Sprintf("The server's clock is %v %s this process's.",
			e.offset.Abs().Round(time.Millisecond), where),
			"Set both clocks by NTP: after a loss of data, tokens and the order of waiters rest on them.")
	}
}

func (e *examination) judgeMemory() {
	policy := e.info["maxmemory_policy"]
	if policy == "" || policy == "noeviction" {
		return
	}
	const advice = "Set maxmemory-policy to noeviction."
	if limit := e.info["maxmemory"]; limit == "" || limit == "0" {
		e.find(driver.Warning, "eviction-policy", "With maxmemory-policy "+policy+
			" locks would be dropped while they are held, if memory were limited.", advice)
		return
	}
	e.find(driver.Failure, "eviction-policy", "With maxmemory-policy "+policy+
		" locks are dropped while they are held when memory runs out.", advice)
}

func (e *examination) judgeDisk() {
	forgetful := driver.Warning
	if e.guarded {
		forgetful = driver.Note // the guard covers that
	}
	if e.durable && e.settings != nil {
		e.judgeWord()
		return
	}
	const advice = "Set appendonly yes, or use a restart guard."
	switch {
	case e.info["aof_enabled"] == "1":
		if how := e.settings["appendfsync"]; how != "" && how != "always" {
			e.find(driver.Note, "fsync", "With appendfsync "+how+
				" a power failure forgets the last locks.",
				"Set appendfsync always if that matters.")
		} else if e.settings["no-appendfsync-on-rewrite"] == "yes" {
			e.find(driver.Note, "fsync",
				"With no-appendfsync-on-rewrite yes a power failure during a rewrite forgets the last locks, even with appendfsync always.",
				"Set no-appendfsync-on-rewrite no.")
		}
	case e.settings["save"] != "":
		e.find(forgetful, "persistence",
			"With snapshots alone a server that is killed forgets the locks since the last one.",
			advice)
	default:
		e.find(forgetful, "persistence",
			"Nothing is written to disk: a server that restarts forgets all locks.", advice)
	}
}

// judgeWord compares the settings with the operator's word that the server is durable.
func (e *examination) judgeWord() {
	const advice = "Take durable=always out of the address of every client, and set it: the parameter may come back when the guard is over."
	contradicts := func(setting, want string) (summary string, so bool) {
		is := e.settings[setting]
		return fmt.Sprintf("The address says durable=always, and the server has %s %s, not %s: clients refuse it.",
			setting, is, want), is != want
	}
	if summary, so := contradicts("appendonly", "yes"); so {
		e.find(driver.Failure, "persistence", summary, advice)
	}
	if summary, so := contradicts("appendfsync", "always"); so {
		e.find(driver.Failure, "fsync", summary, advice)
	}
	if summary, so := contradicts("no-appendfsync-on-rewrite", "no"); so {
		e.find(driver.Failure, "fsync", summary, advice)
	}
}
