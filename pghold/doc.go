// Package pghold keeps locks in PostgreSQL.
//
//	err := pghold.Migrate(ctx, pool) // once; or run the SQL of pghold.Schema() by hand
//	backend, err := pghold.New(pool) // a *pgxpool.Pool that the service has
//	locker, err := holdfast.New(backend)
//
// or, with a pool of its own, pghold.Open(ctx, "postgres://localhost/app"). [NewSQL] takes a
// *sql.DB. The locks are rows of tables in the schema holdfast; functions in SQL change them, each
// in one statement and one round trip. Pghold needs PostgreSQL 11 or later. The tests have run on
// 15.
//
// # What is stored
//
// A key has one row while it is held, and for ten minutes after. So a pair of acquisition and
// release is two updates of that row in place. Waiters and sharers of a key are in tables of their
// own. A release hands the key to the next waiter in the same statement. A fencing token comes from
// the row; when the row goes, its fence goes into a floor that new rows begin at. If somebody
// removes rows of holdfast.locks by hand, tokens still rise as far as the clocks of clients agree.
// To take a key from a holder that is in the way use the command holdfast release, or
//
//	UPDATE holdfast.locks SET owner = NULL WHERE key = 'nightly';
//
// # Time
//
// Only the server's clock counts, which is its wall clock: set it by slewing, as NTP does. If it is
// set forward, leases end early by as much; if it is set back, a key whose holder or first waiter
// has died stays held for longer by as much.
//
// # Durability
//
// A crash of the server loses no lock and no token: a grant, a renewal or a handoff is on the disk
// before it is answered, even if synchronous_commit is off for the user, the database or the
// server. Only the presence of waiters is committed asynchronously. A client can do nothing about
// two things. With fsync off, of which [Backend.Check] warns, a failure of the machine forgets or
// damages locks. And a standby that takes over and did not have to confirm each commit forgets the
// commits of the last moments. Then a lock can be granted twice, unless the store checks the
// fencing token or a restart guard is set (see driver.Guarder). With a guard the server grants
// nothing until every lease that it may have forgotten is over.
//
// A restart guard does not notice that older tables were loaded into a server that runs, as by
// psql or pg_restore, if the copy has what is in holdfast.run. So make copies with pg_dump
// --no-unlogged-table-data, or delete that row before anybody locks.
//
// A standby that confirms each commit, by synchronous_standby_names, has whatever was answered. If
// a wait for it is cancelled, the commit is answered as if the standby had confirmed it. So a
// waiter that another process hands a key to asks the server before it counts as the holder. If you
// cancel statements that wait for a standby by hand, with pg_cancel_backend, they are answered as
// confirmed too; end their connections instead.
//
// # Poolers
//
// Nothing here needs a session: each request is one statement that commits by itself, on any
// connection. So PgBouncer in transaction mode will do. The statement is prepared if that works,
// which is faster, and otherwise neither prepared nor described before (pgx.QueryExecModeExec).
// Open looks for a pooler. New finds one when a prepared statement does not exist any more, and the
// server has executed nothing of it then. Only notices of a grant to a waiter of another process
// need a direct connection, for LISTEN. The Backend opens that connection by itself when somebody
// waits. If it finds a pooler, it does without notices and asks once a second, unless [WithNotices]
// gives it another way.
//
// # Settings of the session
//
// It does not matter how the user's sessions write times, numbers and bytes, plan, or compare. The
// isolation level has to be read committed, and transactions must not be read-only. Both are
// PostgreSQL's defaults. Otherwise acquisitions fail with an error that says so. A
// statement_timeout or lock_timeout ends requests that take longer, which then have no effect. So
// let these be longer than a busy server needs, for example a second.
//
// An idle_session_timeout ends connections of the pool, and the next request on such a connection
// fails with ErrUnavailable, or with ErrUnknown over lib/pq. An acquisition ends with that error; a
// renewal is made again. A pgxpool looks at a connection that was idle for a second before it uses
// it, and that of Open after ten seconds, so it notices if the timeout is longer than that. A
// *sql.DB does not look: give it a SetConnMaxIdleTime that is shorter than the timeout.
//
// With the simple protocol, pgx needs client_encoding to be UTF8 and standard_conforming_strings to
// be on. With other settings New does without the simple protocol. With NewSQL requests fail, and
// those that would change something fail with ErrUnknown although nothing was sent. So leave out
// default_query_exec_mode=simple_protocol, or those settings.
//
// # Order
//
// A pool spreads requests over connections, so the Backend sends a request for a key when the one
// before it, of the same key, has come back. The context of a call bounds the caller's wait, not
// the request. A request that has no answer within five seconds is given up, with its connection,
// and may still arrive later. So requests have numbers, and the next one about the lock by the same
// holder or waiter tells the server which came before it. The server ignores those when they
// arrive: an acquisition after its release, and a release after a waiter over several nodes
// (package quorum) has asked again. It remembers that for a minute. An acquisition that arrives
// later locks the key for its TTL, and nobody holds it. A release that arrives later takes away
// what such a waiter has got since.
//
// Each request takes a connection of the pool, for five seconds at most. If the service has all of
// them in use, locks wait for one, and renewals too, so give the pool a few more than the service
// needs at a time, or the locks a pool of their own. A request that nobody waits for any more when
// it gets a connection is not sent, unless it is a release, and its error is ErrUnavailable.
//
// # Access
//
// The least that a user needs:
//
//	GRANT USAGE ON SCHEMA holdfast TO locks;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO locks;
//
// With [WithReadOnly] a user needs the same with SELECT alone. Everybody may call new functions,
// unless default privileges say otherwise. Then the user also needs:
//
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO locks;
package pghold
