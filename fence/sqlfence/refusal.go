package sqlfence

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/fence"
)

// refused matches the errors of the triggers, as drivers pass them on. All of the text has to
// match, and in PostgreSQL the code as well, because the errors of a database repeat texts that
// come from outside.
var refused = map[Dialect]*regexp.Regexp{
	Postgres: regexp.MustCompile(`holdfast: stale token \d+ for (\w+), the newest is (\d+)`),
	MySQL: regexp.MustCompile(
		`^Error 1644(?: \(45000\))?: holdfast: stale token \d+ for (\w+), the newest is (\d+)$`),
	SQLite: regexp.MustCompile(
		`^(?:sqlite3: )?(?:constraint failed: )?holdfast: stale token for (\w+)()(?: \(\d+\))?$`),
}

// triggerRefused is the code of the triggers of PostgreSQL.
const triggerRefused = "HF001"

// refusal makes a StaleError of an error that comes from a trigger.
func (d Dialect) refusal(err error, token fence.Token) error {
	var match []string
	if errors.Is(err, fence.ErrStale) || !within(err, func(e error) bool {
		if state, ok := e.(interface{ SQLState() string }); d == Postgres &&
			(!ok || state.SQLState() != triggerRefused) {
			return false
		}
		match = refused[d].FindStringSubmatch(e.Error())
		return match != nil
	}) {
		return err
	}
	newest, _ := strconv.ParseUint(match[2], 10, 64)
	return fmt.Errorf("%w: %w", &fence.StaleError{Resource: match[1], Token: token,
		Newest: fence.Token(newest)}, err)
}

// within reports whether is holds for err or for one that it wraps.
func within(err error, is func(error) bool) bool {
	if err == nil || is(err) {
		return err != nil
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return within(err.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(err.Unwrap(), func(e error) bool { return within(e, is) })
	}
	return false
}
