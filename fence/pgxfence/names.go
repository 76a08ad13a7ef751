package pgxfence

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
)

// identifier matches a name that may stand for a table or column, as in package sqlfence: plain or
// quoted, and for a table with its schema.
var identifier = regexp.MustCompile(
	"^(?:[A-Za-z_][A-Za-z0-9_$]*|\"[^\"\x00]+\")(?:\\.(?:[A-Za-z_][A-Za-z0-9_$]*|\"[^\"\x00]+\"))?$")

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

func orDefault(name, byDefault string) string {
	if name == "" {
		return byDefault
	}
	return name
}

// assignment returns what stands after SET before the guard's own column, and its arguments. The
// guard may add arguments behind them.
func assignment(ctx context.Context, resource, set string, args []any) (string, []any, error) {
	if len(args) > 0 {
		switch named := args[0].(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
			var err error
			set, args, err = named.(pgx.QueryRewriter).RewriteQuery(ctx, nil, set, args[1:])
			if err != nil {
				return "", nil, fmt.Errorf("fence: write to %q: %w: %w", resource,
					fence.ErrInvalid, err)
			}
		case pgx.QueryRewriter, pgx.QueryExecMode, pgx.QueryResultFormats,
			pgx.QueryResultFormatsByOID:
			return "", nil, fmt.Errorf(
				"fence: write to %q: %w: the first argument is a %T; allowed are values and pgx.NamedArgs",
				resource, fence.ErrInvalid, named)
		}
	}
	if set != "" {
		set += "\n, " // a new line, as set may end in a comment
	}
	return set, args[:len(args):len(args)], nil
}
