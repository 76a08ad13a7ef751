package pghold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// ErrMissing is in the error of a call to a database in which the tables and functions of the locks
// are missing, or are of another version. [Migrate] makes them.
var ErrMissing = errors.New("the tables or functions of the locks are missing in this database: " +
	"run pghold.Migrate, or the SQL of pghold.Schema")

// ErrRights is in the error of a call as a user who may not use the tables or functions.
var ErrRights = errors.New("the user may not use the tables or functions of the locks: " +
	"GRANT USAGE ON SCHEMA holdfast, and in it SELECT, INSERT, UPDATE, DELETE ON ALL TABLES and " +
	"EXECUTE ON ALL FUNCTIONS")

// ErrReadOnly is in the error of a call that would change something, of a Backend that was opened
// by [WithReadOnly].
var ErrReadOnly = errors.New("the backend was opened to look only")

var errClosed = errors.New("backend closed")

// state returns the SQLSTATE of an error of the server, or "".
func state(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// elsewhere reports whether an error says that the connection leads to a server that serves no
// locks any more, because it is read-only or shuts down.
func elsewhere(err error) bool {
	switch state(err) {
	case "25006", "57P01", "57P02", "57P03":
		return true
	}
	return false
}

// failure returns the driver's error. sent says that the request may have reached the server. If
// the server answers with an error, the request was rolled back, unless the connection was ended.
func (b *Backend) failure(err error, sent bool) *driver.Error {
	e := &driver.Error{Node: b.name, Maybe: sent, Err: b.discreet(err)}
	code := state(err)
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &connect):
		e.Maybe, e.Permanent = false, permanentLogin(code)
		e.Err = b.discreet(connect.Unwrap()) // the rest is user and database
	case errors.Is(err, errExhausted):
		e.Err = fmt.Errorf("waited %v: %w", patience, errExhausted)
	case errors.Is(err, errConnection):
		e.Err = fmt.Errorf("waited %v: %w", patience, errConnection)
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = fmt.Errorf("no answer within %v: %w", patience, errNoAnswer)
	case code != "":
		e.Maybe = sent && endsConnection(err, code)
		e.Permanent = b.permanent(code)
		switch {
		case missing(code):
			e.Err = fmt.Errorf("%w: %w", ErrMissing, e.Err)
		case code == "42501":
			e.Err = fmt.Errorf("%w: %w", ErrRights, e.Err)
		}
	}
	return e
}

// endsConnection reports whether the server has ended the connection with this error. Then the
// request may have been committed: a wait for a standby can end so, and a write to the disk. An
// idle_session_timeout ends it only where no request is being executed.
func endsConnection(err error, code string) bool {
	if code == "57P05" {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.SeverityUnlocalized {
		case "FATAL", "PANIC":
			return true
		}
	}
	return strings.HasPrefix(code, "08") || code == "57P01" || code == "57P02"
}

// discreet returns err in one line, and hides the user of the URL where servers write one, because
// it may be a piece of a password. The name may also be a word of the rest, which stays.
func (b *Backend) discreet(err error) error {
	if err == nil {
		return nil
	}
	return &discreetError{err, b.config.user}
}

type discreetError struct {
	error
	user string
}

func (e *discreetError) Unwrap() error { return e.error }

// Error tells once what pgx tells of several attempts to connect.
func (e *discreetError) Error() string {
	text := e.error.Error()
	if e.user != "" {
		text = hide(text, e.user)
	}
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(parts, line) {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

// hide returns the text without the user where pgx or a server writes one.
func hide(text, user string) string {
	const longest = 63 // servers cut off the rest
	pairs := []string{"user=" + user + " ", "user=... "}
	for _, name := range []string{user, user[:min(len(user), longest)]} {
		// Servers speak many languages.
		for _, quotes := range [][2]string{{`"`, `"`}, {"»", "«"}, {"«", "»"}, {"« ", " »"},
			{"«\u00a0", "\u00a0»"}, {"“", "”"}} {
			pairs = append(pairs, quotes[0]+name+quotes[1], quotes[0]+"..."+quotes[1])
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// errNoAnswer stands for the context of a request, which is not the caller's.
var errNoAnswer = errors.New("the request was given up")

func missing(code string) bool {
	switch code {
	// No such table, function, schema, column, or type, which each table is as well.
	case "42P01", "42883", "3F000", "42703", "42704":
		return true
	}
	return false
}

// permanentLogin reports whether a login that was refused so will be refused again.
func permanentLogin(code string) bool {
	return strings.HasPrefix(code, "28") || code == "3D000" || code == "42501"
}

// permanent reports whether the same request fails again until somebody changes something. If a
// server has taken writes and takes none any more, that is an outage, because another server may
// take over.
func (b *Backend) permanent(code string) bool {
	switch {
	case code == "25006":
		return !b.wrote.Load()
	case missing(code), permanentLogin(code):
		return true
	case strings.HasPrefix(code, "42"), code == "25000", code == "0A000", code == "22023":
		return true
	}
	return false
}

func refuse(format string, args ...any) *driver.Error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf("pghold: "+format, args...)}
}
