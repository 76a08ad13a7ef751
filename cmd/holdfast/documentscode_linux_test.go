package main_test

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
)

// TestDocumentsCompile: the pieces of Go in the documents compile. docs/start.md and
// docs/testing.md have whole programs, which tests of their own run.
func TestDocumentsCompile(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("%q, %v", documents, err)
	}
	var pieces []string
	for _, path := range append(documents, filepath.Join(repository, "README.md")) {
		name, err := filepath.Rel(repository, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocksOf(t, name) {
			text := strings.Join(b.lines, "\n")
			if b.kind != "go" || strings.Contains("\n"+text, "\npackage ") {
				continue
			}
			if strings.Count("\n"+text, "\nbackend, err := ") > 1 {
				pieces = append(pieces, b.lines...) // one line or another
			} else {
				pieces = append(pieces, text)
			}
		}
	}
	if out, err := compile(t, pieces); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	// A compiler that looks at nothing would be content, too.
	if out, err := compile(t, []string{"locker.Dont()"}); err == nil ||
		!strings.Contains(out, "Dont") {
		t.Errorf("a method that is not there compiles: %v, %s", err, out)
	}
}

// around is what the pieces take for granted.
const around = `
var (
	backend driver.Backend
	ctx     context.Context
	db      *sql.DB
	err     error
	locker  *holdfast.Locker
	pool    *pgxpool.Pool
)

func transfer(ctx context.Context, tokens ...holdfast.Token) error { return ctx.Err() }
func schedule(ctx context.Context, token holdfast.Token) error     { return ctx.Err() }
`

// compile compiles pieces of code, each as a function, and returns what the compiler says.
func compile(t *testing.T, pieces []string) (string, error) {
	t.Helper()
	text := around
	for i, piece := range pieces {
		text += fmt.Sprintf("\nfunc piece%d() {\n%s\n%s}\n", i, piece, uses(t, piece))
	}
	const kernel = "github.com/holdfast-go/holdfast"
	file := "package pieces\n"
	for _, path := range []string{"context", "database/sql", "errors", "fmt", "log",
		"github.com/jackc/pgx/v5/pgxpool", "github.com/prometheus/client_golang/prometheus",
		kernel, kernel + "/driver", kernel + "/election", kernel + "/etcdhold", kernel + "/fence",
		kernel + "/fence/sqlfence", kernel + "/memhold", kernel + "/otelhold", kernel + "/pghold",
		kernel + "/promhold", kernel + "/redishold", kernel + "/redishold/redlock",
		kernel + "/zkhold"} {
		if regexp.MustCompile(`\b` + filepath.Base(path) + `\.`).MatchString(text) {
			file += fmt.Sprintf("import %q\n", path)
		}
	}
	name := filepath.Join(t.TempDir(), "pieces.go")
	if err := os.WriteFile(name, []byte(file+text), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), name)...)
	build.Dir, build.Env = repository, append(os.Environ(), "GOWORK=") // all modules
	out, err := build.CombinedOutput()
	return string(out), err
}

// uses returns statements that use what the piece declares, since a piece ends before that.
func uses(t *testing.T, piece string) (statements string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+piece+"\n}", 0)
	if err != nil {
		t.Fatalf("%v in\n%s", err, piece)
	}
	for _, statement := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if s, ok := statement.(*ast.AssignStmt); ok && s.Tok == token.DEFINE {
			for _, left := range s.Lhs {
				statements += "_ = " + left.(*ast.Ident).Name + "\n"
			}
		}
	}
	return statements
}

// called finds commands in prose, and in blocks that show them.
var called = regexp.MustCompile("(?m)(?:`|^\\$ )holdfast ([^`\n;|&]+)")

// TestDocumentsNameCommands: each command that a document names is there, and has the flags that
// the document gives it.
func TestDocumentsNameCommands(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("%q, %v", documents, err)
	}
	found := 0
	for _, path := range append(documents, filepath.Join(repository, "README.md"),
		filepath.Join(repository, "SECURITY.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range called.FindAllStringSubmatch(string(text), -1) {
			found++
			if complaint := unknownCall(match[1]); complaint != "" {
				t.Errorf("%s: holdfast %s: %s", path, match[1], complaint)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands found", found)
	}
	for call, want := range map[string]string{
		"run --on URL NAME -- make --no-such": "", "lokc NAME": "no such command",
		"run --no-such NAME -- true": "no such flag", "fence show --on URL R": "",
		"fence forget R": "no such command", "help addresses": "", "help --bogus": "no such flag",
	} {
		if got := unknownCall(call); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("holdfast %s: %q, want %q", call, got, want)
		}
	}
}

// unknownCall says what a call of holdfast has that the command does not know, "" if nothing.
func unknownCall(call string) string {
	call, _, _ = strings.Cut(call, " -- ")
	words := strings.Fields(call)
	if words[0] == "fence" && len(words) > 1 {
		words = words[1:]
	}
	known, err := os.ReadFile(filepath.Join("internal/cli/testdata", words[0]+".txt"))
	if err != nil {
		return "no such command: " + words[0]
	}
	flags := regexp.MustCompile(`--?[a-zA-Z][a-z-]*`).FindAllString(string(known), -1)
	flags = append(flags, "--help")
	for _, word := range words[1:] {
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "-") && !slices.Contains(flags, flag) {
			return "no such flag: " + flag
		}
	}
	return ""
}

// TestFencingDocumentStatements runs the statement of docs/fencing.md, and those for scripts that
// write by SQL. A token smaller than the row's writes nothing and is told so; others write.
func TestFencingDocumentStatements(t *testing.T) {
	t.Parallel()
	var statement, script string
	for _, b := range blocksOf(t, "docs/fencing.md") {
		text := strings.Join(b.lines, "\n")
		switch {
		case b.kind == "sql":
			statement = text
		case b.kind == "text" && strings.Contains(text, "psql"):
			script = text
		}
	}
	s, err := postgrestest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, s.Remove, s.Log) })
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	if _, err := open(s.DSN()).ExecContext(t.Context(), "CREATE DATABASE ledger"); err != nil {
		t.Fatal(err)
	}
	db := open(s.DSN() + " dbname=ledger")
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE accounts (id bigint, balance bigint,
		fence bigint NOT NULL DEFAULT 0); INSERT INTO accounts VALUES (7, 100)`); err != nil {
		t.Fatal(err)
	}
	user := regexp.MustCompile(`user=(\S+)`).FindStringSubmatch(s.DSN())[1]
	for i, step := range []struct {
		token string // "" for the statement
		done  bool
	}{{"33", true}, {"", true}, {"", true}, {"33", false}, {"35", true}, {"", false}} {
		done := false
		if step.token == "" {
			result, err := db.ExecContext(t.Context(), statement)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := result.RowsAffected()
			done = n == 1
		} else {
			cmd := exec.Command("bash", "-c", script)
			cmd.Env = append(os.Environ(), "PGHOST="+s.Dir, "PGUSER="+user,
				"HOLDFAST_TOKEN="+step.token)
			out, err := cmd.CombinedOutput()
			if done = err == nil; !done && (cmd.ProcessState.ExitCode() != 1 || len(out) > 0) {
				t.Errorf("step %d: %v: %s", i, err, out)
			}
		}
		if done != step.done {
			t.Errorf("step %d: written: %v", i, done)
		}
	}
	var balance int
	if err := db.QueryRowContext(t.Context(), "SELECT balance FROM accounts").Scan(
		&balance); err != nil || balance != 60 {
		t.Errorf("balance %d, %v; want four times 10 less than 100", balance, err)
	}
}
