package pgxfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/fence"
)

// attempt is what errors name.
type attempt struct {
	resource string
	token    fence.Token
}

func (w attempt) failed(err error) error {
	return fmt.Errorf("fence: write to %q: %w", w.resource, err)
}

// ended returns the error of the context if it has ended.
func (w attempt) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return w.failed(withCause(ctx, err))
	}
	return nil
}

// withCause adds why the context has ended, which may tell of a lost lock.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// outcome returns our error for one of PostgreSQL or pgx. unsure says that something may be written
// unless the error says that nothing is.
func (w attempt) outcome(ctx context.Context, unsure bool, err error) error {
	if refused := w.refusal(err); refused != nil {
		return refused
	}
	unsure = unsure && !answered(err)
	unserved := !unsure && ctx.Err() == nil && isUnserved(err)
	err = withCause(ctx, err)
	switch {
	case unsure:
		err = fmt.Errorf("%w: %w", fence.ErrUnknown, err)
	case unserved:
		err = fmt.Errorf("%w: %w", fence.ErrUnavailable, err)
	}
	return w.failed(err)
}

// answered reports whether nothing was written, because err is PostgreSQL's own answer or comes
// from before the statement was sent.
func answered(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return told(server.Code)
	}
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || pgconn.SafeToRetry(err) ||
		errors.Is(err, pgx.ErrTxCommitRollback)
}

// told reports whether an error with the code says that nothing was written. Class 08 does not: it
// is that of broken connections, also between a pooler and the database. But two of its codes are
// about connections that were never made. 40003 itself says that the completion is unknown.
func told(code string) bool {
	switch code {
	case "08001", "08004":
		return true
	case "40003":
		return false
	}
	return !strings.HasPrefix(code, "08")
}

// isUnserved reports whether the database could not be reached or does not serve writes for now.
func isUnserved(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		// 08 is the connection, 53 resources, 57P a server that starts or stops, 25006 a replica.
		return server.Code == "25006" || slices.ContainsFunc([]string{"08", "53", "57P"},
			func(class string) bool { return strings.HasPrefix(server.Code, class) })
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// mark is in the errors with which the guards' own statements refuse. The error of a cast repeats
// what could not be cast, which may be a text from outside. No such text has the mark.
var mark = rand.Text()

// stale matches the errors of the guards' own statements. staleFor matches those of triggers, which
// name their table and have a code of their own.
var (
	stale    = regexp.MustCompile(`holdfast: stale token \d+ \(` + mark + `\), the newest is (\d+)`)
	staleFor = regexp.MustCompile(`holdfast: stale token \d+ for (\w+), the newest is (\d+)`)
)

// invalidText is the code of a cast that fails, and triggerRefused that of the triggers.
const invalidText, triggerRefused = "22P02", "HF001"

// accept returns an SQL expression. Its value is the token if the token is not smaller than newest
// or newest is NULL. Otherwise it raises the error of a cast: only a function could raise an error
// of its own, and a function would have to be created first.
func accept(token, newest string) string {
	return fmt.Sprintf("CASE WHEN %[2]s > %[1]s THEN CAST('holdfast: stale token ' || %[1]s || "+
		"' (%[3]s), the newest is ' || %[2]s AS bigint) ELSE %[1]s END", token, newest, mark)
}

// refusal returns a StaleError for an error of the guards or of a trigger, and nil for others.
func (w attempt) refusal(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) || errors.Is(err, fence.ErrStale) {
		return nil
	}
	switch server.Code {
	case triggerRefused:
		if match := staleFor.FindStringSubmatch(server.Message); match != nil {
			return fmt.Errorf("%w: %w", w.stale(match[1], match[2]), err)
		}
	case invalidText:
		if match := stale.FindStringSubmatch(server.Message); match != nil {
			return w.stale(w.resource, match[1])
		}
	}
	return nil
}

func (w attempt) stale(resource, newest string) error {
	token, _ := strconv.ParseUint(newest, 10, 64)
	return &fence.StaleError{Resource: resource, Token: w.token, Newest: fence.Token(token)}
}
