// Package pghold keeps locks in PostgreSQL.
//
//	err := pghold.Migrate(ctx, pool) // once; or run the SQL of pghold.Schema() by hand
//	backend, err := pghold.New(pool) // a *pgxpool.Pool that the service has
//	locker, err := holdfast.New(backend)
//
// or, with a pool of its own, pghold.Open(ctx, "postgres://localhost/app"). [NewSQL] takes a
// *sql.DB. The locks are rows of tables in the schema holdfast; functions in SQL change them, each
// in one statement and one round trip. PostgreSQL 11 or later is needed; the tests have run on 15.
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
// set forward, leases end early by as much.
//
// # Durability
//
// A crash of the server loses no lock and no token: what grants, renews or hands over a lock is on
// the disk before it is answered, even if synchronous_commit is off for the user, the database or
// the server. Only the presence of waiters is committed asynchronously. Two things are out of a
// client's hands. With fsync off, which [Backend.Check] warns of, a failure of the machine forgets
// or damages locks. And a standby that takes over and did not have to confirm each commit forgets
// those of the last moments. Then a lock can be granted twice, unless the fencing token is checked
// where it matters, or a restart guard is set (see driver.Guarder): the server then grants nothing
// until every lease that it may have forgotten is over.
//
// A standby that confirms each commit, by synchronous_standby_names, has whatever was answered. A
// wait for it that is cancelled ends as if it had confirmed: so who is handed a key by another
// process asks the server before it counts as the holder. To cancel statements that wait for a
// standby by hand, with pg_cancel_backend, has them answered as confirmed; end their connections
// instead.
//
// # Poolers
//
// Nothing here needs a session: each request is one statement that commits by itself, on whichever
// connection. It is prepared where that works, which is faster, and else neither prepared nor
// described before (pgx.QueryExecModeExec): Open looks for a pooler, and New finds one by the first
// statement that is not there any more, of which the server has executed nothing. So PgBouncer in
// transaction mode will do. Only notices of a grant to a waiter of another process need a direct
// connection, for LISTEN, which the Backend opens by itself when somebody waits: if it finds a
// pooler it does without, and asks once a second, or [WithNotices] gives it another way.
//
// # Settings of the session
//
// How the user's sessions write times, numbers and bytes, plan and compare does not matter. The
// isolation level has to be read committed and transactions may not be read-only, which is how
// PostgreSQL is delivered; else acquisitions fail with an error that says so. A statement_timeout
// or lock_timeout ends requests that take longer, which then have had no effect: let them be longer
// than a busy server needs, a second for example.
//
// An idle_session_timeout ends connections of the pool, and the next request on such a one fails
// with ErrUnavailable: an acquisition ends with that, a renewal is made again. A pgxpool looks at
// connections that were idle for a second before it uses them, so it notices with a timeout of more
// than that; a *sql.DB does not: give it a shorter SetConnMaxIdleTime.
//
// With the simple protocol, pgx takes no client_encoding but UTF8 and no setting of
// standard_conforming_strings but on. New does without the simple protocol then; with NewSQL
// requests fail, as ErrUnknown where something would be changed, though nothing was sent. So leave
// out default_query_exec_mode=simple_protocol, or the settings.
//
// # Order
//
// A pool spreads requests over connections, so the Backend sends a request for a key when the one
// before it, of the same key, has come back. The context of a call bounds the caller's wait, not
// the request. A request that has no answer within five seconds is given up, with its connection.
// If it was to acquire, it may still arrive; the release that follows has the server refuse it for
// a minute.
//
// # Access
//
// The least that a user needs:
//
//	GRANT USAGE ON SCHEMA holdfast TO locks;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO locks;
//
// With [WithReadOnly] a user needs the same with SELECT alone.
package pghold
