package pghold

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// clockTolerance is how far the server's clock may be from this process's before Check reports it.
// The time of the request is added.
const clockTolerance = time.Second

// oldest is the oldest version of PostgreSQL that has all that the functions use.
const oldest = 11

const checkStatement = `SELECT current_setting('server_version_num')::bigint, pg_is_in_recovery(),
	current_setting('default_transaction_read_only') = 'on',
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
	current_setting('synchronous_commit'),
	current_setting('synchronous_standby_names') <> '',
	(SELECT count(*) FROM pg_stat_replication),
	current_setting('default_transaction_isolation'),
	to_regclass('holdfast.locks') IS NOT NULL,
	(SELECT coalesce(min(setting::bigint), 0) FROM pg_settings
		WHERE name IN ('statement_timeout', 'lock_timeout') AND setting <> '0')`

// rightsStatement counts the tables that the user may not read, and those that he may not write.
// With them it counts the functions that he may not call. Who looks calls only holdfast.version.
const rightsStatement = `WITH barred AS (SELECT p.proname FROM pg_proc AS p
	JOIN pg_namespace AS n ON n.oid = p.pronamespace
	WHERE n.nspname = 'holdfast' AND NOT has_function_privilege(p.oid, 'EXECUTE'))
SELECT
	(SELECT count(*) FROM barred WHERE proname = 'version')
		+ count(*) FILTER (WHERE NOT has_table_privilege('holdfast.' || t, 'SELECT')),
	(SELECT count(*) FROM barred)
		+ count(*) FILTER (WHERE NOT has_table_privilege('holdfast.' || t, 'INSERT')
		OR NOT has_table_privilege('holdfast.' || t, 'UPDATE')
		OR NOT has_table_privilege('holdfast.' || t, 'DELETE'))
	FROM unnest(ARRAY['locks', 'sharers', 'waiters', 'ended', 'server', 'run']) AS t`

// shortTimeout is how long the server has to let a request take.
const shortTimeout = time.Second

// Check looks at the server for what weakens the promises, as driver.Checker describes, and changes
// nothing. If it cannot ask the server, it returns an error. The codes are:
//
//   - version: the server is too old.
//   - role: the server is a standby, or the user's transactions are read-only.
//   - tables: the tables are missing.
//   - rights: the user may not use the tables or functions. With [WithReadOnly] this is only a note
//     if he may read the tables.
//   - isolation: the user's transactions have another isolation level than read committed.
//   - fsync: the server forgets locks when its machine fails.
//   - replicas: a standby may take over that has not heard of the last locks.
//   - timeouts: the server ends requests that take less than a second.
//   - pooler: a pooler is between, and notices have no connection of their own.
//   - clock: the server's clock differs from this process's by more than a second.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	e := &examination{node: b.name}
	return aside(ctx, b, false, func(ctx context.Context) ([]driver.Finding, error) {
		if err := e.look(ctx, b); err != nil {
			return nil, err
		}
		e.judge()
		slices.SortStableFunc(e.findings, func(a, b driver.Finding) int {
			return cmp.Compare(b.Severity, a.Severity)
		})
		return e.findings, nil
	})
}

// examination is the check of a server.
type examination struct {
	node string

	version   int64
	standby   bool
	readOnly  bool
	safe      bool   // it writes to disk before it answers, if told to
	commit    string // synchronous_commit
	confirmed bool   // some standby has to confirm
	replicas  int64
	isolation string
	tables    bool
	hidden    int64 // what the user would need to look, and may not use
	refused   int64 // the same of what he would need to lock
	looks     bool  // he need not write
	timeout   int64 // the shorter of two, in milliseconds; 0 if there is none
	pooled    bool
	offset    time.Duration // how far its clock is ahead, at least; negative for behind

	findings []driver.Finding
}

// look asks the server.
func (e *examination) look(ctx context.Context, b *Backend) error {
	var clock int64
	asked := time.Now()
	err := b.query(ctx, false, checkStatement, nil, func(scan func(...any) error) error {
		return scan(&e.version, &e.standby, &e.readOnly, &clock, &e.safe, &e.commit, &e.confirmed,
			&e.replicas, &e.isolation, &e.tables, &e.timeout)
	})
	if err != nil {
		if state(err) != "42501" { // the schema may not be used
			return err
		}
		e.tables, e.hidden = true, 1
		return nil
	}
	e.offset = outside(time.UnixMicro(clock), asked, time.Now())
	if e.looks = b.config.readOnly; e.tables {
		err = b.query(ctx, false, rightsStatement, nil, func(scan func(...any) error) error {
			return scan(&e.hidden, &e.refused)
		})
		if err != nil && state(err) != "42501" {
			return err
		}
		if err != nil {
			e.hidden = 1
		}
	}
	e.pooled = b.pooled(ctx)
	return nil
}

// pooled reports whether notices cannot be heard because of a pooler. If this look itself fails,
// that is no finding, because the Backend works without notices.
func (b *Backend) pooled(ctx context.Context) bool {
	if b.config.notices == nil || b.config.quiet {
		return false
	}
	conn, err := connect(ctx, b.config.notices)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	pooled, err := behindPooler(ctx, conn)
	return err == nil && pooled
}

// outside returns by how much a clock that was read between two moments shows a time outside of
// them. The result is negative if the clock shows a time before them.
func outside(clock, from, to time.Time) time.Duration {
	// Without the monotonic readings: this compares wall clocks.
	switch from, to = from.Round(0), to.Round(0); {
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

// judge makes findings of the answers.
func (e *examination) judge() {
	e.judgeUse()
	if e.version > 0 {
		e.judgeMemory()
	}
	if e.pooled {
		e.find(driver.Note, "pooler", "A pooler is between, so waiters hear of a grant when they "+
			"ask next, once a second.", "Give WithNotices a direct connection if that matters.")
	}
	if e.offset.Abs() > clockTolerance {
		where := "ahead of"
		if e.offset < 0 {
			where = "behind"
		}
		e.find(driver.Warning, "clock", fmt.Sprintf("The server's clock is %v %s this process's.",
			e.offset.Abs().Round(time.Millisecond), where),
			"Set both clocks by NTP: after a loss of data, tokens rest on them.")
	}
}

// judgeUse finds what keeps the locks from being used.
func (e *examination) judgeUse() {
	if e.version > 0 && e.version < oldest*10000 {
		e.find(driver.Failure, "version", fmt.Sprintf("PostgreSQL %d is too old.", e.version/10000),
			fmt.Sprintf("Use PostgreSQL %d or later.", oldest))
	}
	switch {
	case e.standby:
		e.find(driver.Failure, "role", "The server is a standby and takes no writes.",
			"Use the primary, or name all servers in the address.")
	case e.readOnly:
		e.find(driver.Failure, "role", "The transactions of this user are read-only.",
			"Set default_transaction_read_only off for the user.")
	}
	switch {
	case !e.tables:
		e.find(driver.Failure, "tables", "The tables of the locks are missing in this database.",
			"Run pghold.Migrate, or the SQL of pghold.Schema, or add create=true to the address.")
	case e.hidden > 0, e.refused > 0 && !e.looks:
		e.find(driver.Failure, "rights", "The user may not use the tables or functions of the locks.",
			"GRANT USAGE ON SCHEMA holdfast, and in it SELECT, INSERT, UPDATE, DELETE ON ALL TABLES "+
				"and EXECUTE ON ALL FUNCTIONS.")
	case e.refused > 0:
		e.find(driver.Note, "rights", "The user may look at locks, and may take none.",
			"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast, and EXECUTE ON ALL "+
				"FUNCTIONS in it, to a user who takes locks.")
	}
	if e.isolation != "" && e.isolation != "read committed" {
		e.find(driver.Failure, "isolation", "The isolation level of this user is "+e.isolation+
			", under which no lock can be acquired.",
			"Set default_transaction_isolation to read committed for the user.")
	}
	if timeout := time.Duration(e.timeout) * time.Millisecond; timeout > 0 &&
		timeout < shortTimeout {
		e.find(driver.Warning, "timeouts", fmt.Sprintf("The server ends requests of this user that "+
			"take %v, so locks fail when it is busy.", timeout),
			"Set statement_timeout and lock_timeout for the user to a second at least, or to 0.")
	}
}

// judgeMemory finds what the server may forget.
func (e *examination) judgeMemory() {
	if !e.safe {
		e.find(driver.Warning, "fsync", "With fsync or full_page_writes off a failure of the "+
			"machine forgets or damages locks.", "Set fsync and full_page_writes on.")
	}
	if e.replicas > 0 && (!e.confirmed || e.commit == "local") { // off becomes on
		e.find(driver.Warning, "replicas", fmt.Sprintf("The server has %d standbys that need not "+
			"confirm, and one that takes over may not have heard of the last locks.", e.replicas),
			"Set synchronous_standby_names, or check fencing tokens where it matters.")
	}
}
