package sqlfence

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// Dialect is the SQL that a database speaks. The zero Dialect is invalid.
type Dialect int

const (
	// Postgres is PostgreSQL, from version 11.
	Postgres Dialect = iota + 1

	// MySQL is MySQL from 8.0 and MariaDB from 10.5. The tests run on MariaDB. Tables have to be
	// InnoDB. After a guard's statement, LAST_INSERT_ID() returns the token on that connection.
	MySQL

	// SQLite is SQLite, from version 3.24.
	SQLite
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

func (d Dialect) validate() error {
	if d < Postgres || d > SQLite {
		return fmt.Errorf("fence: %w: the dialect is %v; allowed are Postgres, MySQL and SQLite",
			fence.ErrInvalid, d)
	}
	return nil
}

// place returns the nth placeholder, which has a number only in PostgreSQL.
func (d Dialect) place(n int) string {
	if d == Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

// number returns the nth placeholder, for a token. It tells PostgreSQL the type, so that it does
// not compare tokens as texts.
func (d Dialect) number(n int) string {
	if d == Postgres {
		return "CAST(" + d.place(n) + " AS bigint)"
	}
	return d.place(n)
}

// identifier matches a name that may stand for a table or column: plain or quoted, and for a table
// with its schema.
var identifier = regexp.MustCompile(
	"^(?:[A-Za-z_][A-Za-z0-9_$]*|\"[^\"\x00]+\"|`[^`\x00]+`)(?:\\.(?:[A-Za-z_][A-Za-z0-9_$]*|\"[^\"\x00]+\"|`[^`\x00]+`))?$")

// validateNames fails for a name that is no identifier. Names cannot be arguments of a statement.
func validateNames(names ...string) error {
	for _, name := range names {
		if !identifier.MatchString(name) {
			return fmt.Errorf(
				"fence: %w: %q is no name of a table or column; allowed are plain or quoted identifiers",
				fence.ErrInvalid, name)
		}
	}
	return nil
}

// maxWord is how long a name may be that becomes a part of other names. Names in MySQL and
// PostgreSQL have at most 63 bytes, or are cut there.
const maxWord = 38

var (
	part     = regexp.MustCompile("\"[^\"]+\"|`[^`]+`|[^.]+")
	isPlain  = regexp.MustCompile(`^[a-z0-9_]+$`)
	notPlain = regexp.MustCompile(`[^A-Za-z0-9_]+`)
)

// word returns the name of a table as a part of other names, and in messages: letters, digits and
// _. Tables with different names have different words, so the triggers of one do not replace those
// of another. Two spellings of the same name have the same word.
func (d Dialect) word(table string) string {
	parts := part.FindAllString(table, -1)
	for i, p := range parts {
		quoted := p[0] == '"' || p[0] == '`'
		if quoted {
			p = p[1 : len(p)-1]
		}
		if d == SQLite || d == Postgres && !quoted { // those that do not tell A from a
			p = lower(p)
		}
		parts[i] = p
	}
	if len(parts) == 1 && len(parts[0]) <= maxWord && isPlain.MatchString(parts[0]) {
		return parts[0]
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	word := strings.Trim(notPlain.ReplaceAllString(strings.Join(parts, "_"), "_"), "_")
	return fmt.Sprintf("%.21s_%x", word, sum[:8])
}

// lower makes ASCII letters small, and no others, as databases do.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func orDefault(name, byDefault string) string {
	if name == "" {
		return byDefault
	}
	return name
}
