package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

func failed(resource string, err error) error {
	return fmt.Errorf("fence: write to %q: %w", resource, err)
}

func unknown(resource string, err error) error {
	return failed(resource, fmt.Errorf("%w: %w", fence.ErrUnknown, err))
}

// unreached returns the error for a connection or a transaction that could not be had.
func unreached(ctx context.Context, resource string, err error) error {
	if ctx.Err() != nil {
		return failed(resource, withCause(ctx, err))
	}
	return failed(resource, fmt.Errorf("%w: %w", fence.ErrUnavailable, err))
}

// outcome returns our error for one of the database or its driver. unsure says that something may
// be written unless the error says that nothing is.
func outcome(ctx context.Context, resource string, unsure bool, err error) error {
	switch {
	case unsure && (endedByWrite(ctx, err) || !answered(err)):
		return unknown(resource, withCause(ctx, err))
	case ctx.Err() == nil && isUnserved(err):
		return unreached(ctx, resource, err)
	}
	return failed(resource, withCause(ctx, err))
}

// withCause adds why the context has ended, which may tell of a lost lock.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// execFailed returns the error of a statement. If the statement is a transaction by itself and its
// answer did not come, the outcome is unknown, because the server may go on when the client is
// gone. SQLite is in this process, so its answer is lost only if a driver says that the context
// ended.
func execFailed(ctx context.Context, d Dialect, db Queryer, resource string, err error) error {
	_, inTransaction := db.(interface{ Rollback() error })
	unsure := !inTransaction && (d != SQLite || ctx.Err() != nil)
	// Not so in PostgreSQL: see onConn.
	if d == MySQL && errors.Is(err, driver.ErrBadConn) {
		unsure = false // nothing was sent
	}
	return outcome(ctx, resource, unsure, err)
}

// endedByWrite reports whether write has ended the transaction, perhaps by a commit. If the context
// has ended, database/sql has rolled back, and write did not.
func endedByWrite(ctx context.Context, err error) bool {
	return errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil
}

// definite matches three kinds of errors: those that MySQL sends, which the driver tells apart from
// others only by a type of its own; those of database/sql, which come before a statement is sent;
// and those of drivers of PostgreSQL when the answer to COMMIT was ROLLBACK.
var definite = regexp.MustCompile(
	`^(Error [0-9]+\b|sql: |commit unexpectedly resulted in rollback|pq: Could not complete operation in a failed transaction)`)

// broken matches what proxies send in the name of MySQL when the connection behind them broke: the
// error numbers of the client's library, from 2000, and those of packets that were not read or
// written.
var broken = regexp.MustCompile(`^Error (2[0-9]{3}|1158|1159|1160|1161)\b`)

// answered reports whether nothing was written, because err is the database's own answer or comes
// from before the statement was sent.
func answered(err error) bool {
	var state interface{ SQLState() string } // drivers of PostgreSQL
	var safe interface{ SafeToRetry() bool } // pgx
	var network *net.OpError
	switch {
	case errors.As(err, &state):
		return told(state.SQLState())
	case errors.As(err, &safe) && safe.SafeToRetry():
		return true
	case errors.As(err, &network) && network.Op == "dial":
		return true
	}
	return definite.MatchString(err.Error()) && !broken.MatchString(err.Error())
}

// told reports whether an error with the code says that nothing was written. Class 08 does not: it
// is that of broken connections, also between a pooler and the database. But two of its codes are
// about connections that were never made. 40003 itself says that the completion is unknown.
func told(state string) bool {
	switch state {
	case "08001", "08004":
		return true
	case "40003":
		return false
	}
	return !strings.HasPrefix(state, "08")
}

// notServing matches what MySQL says if it has too many connections, shuts down, or is a replica,
// and what its driver says of a broken connection.
var notServing = regexp.MustCompile(`^(Error (1040|1053|1203|1290|1836)\b|invalid connection$)`)

// isUnserved reports whether the database could not be reached or does not serve writes for now.
func isUnserved(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		// 08 is the connection, 53 resources, 57P a server that starts or stops, 25006 a replica.
		code := state.SQLState()
		return code == "25006" || slices.ContainsFunc([]string{"08", "53", "57P"},
			func(class string) bool { return strings.HasPrefix(code, class) })
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		notServing.MatchString(err.Error()) || broken.MatchString(err.Error())
}
