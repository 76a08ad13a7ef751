package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	// For go test, which takes a result from its cache unless something has changed that the test
	// is made of.
	_ "github.com/holdfast-go/holdfast/cmd/holdfast/internal/sqlguard"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/mariadbtest"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// hidden is what no output of the command may have in it.
const hidden = "hunter2"

// fenceProgram builds the program that has the drivers, beside the command.
var fenceProgram = sync.OnceValue(func() error { return buildBeside("holdfast-fence") })

// buildBeside builds another program of this module beside the command.
func buildBeside(name string) error {
	args := append([]string{"build", "-buildvcs=false", "-o",
		filepath.Join(filepath.Dir(holdfastPath), name)}, buildFlags...)
	args = append(args, "./"+name)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}

// guarded is a store that scripts use.
type guarded struct {
	url    string
	freeze func() // nil if it has no server
	thaw   func()
	kill   func()
}

// result is what a command has said, and its exit code.
type result struct {
	code        int
	out, errors string
}

// fence runs holdfast fence. The address is in the environment.
func (g guarded) fence(t *testing.T, args ...string) result {
	t.Helper()
	return runFence(t, []string{"HOLDFAST_FENCE_URL=" + g.url}, args...)
}

func runFence(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(holdfastPath, append([]string{"fence"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Error(err)
	}
	if all := out.String() + errs.String(); strings.Contains(all, hidden) {
		t.Errorf("%q: the secret is shown: %s", args, all)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// expect runs holdfast fence and compares all that it says. In want, "..." stands for anything.
func (g guarded) expect(t *testing.T, code int, out, errs string, args ...string) {
	t.Helper()
	got := g.fence(t, args...)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(errs), `\.\.\.`, "(?s:.*)") + "$"
	if got.code != code || got.out != out || !regexp.MustCompile(pattern).MatchString(got.errors) {
		t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d, %q, %q", args, got.code, got.out,
			got.errors, code, out, errs)
	}
}

// stores start a store each, that nothing was kept in.
var stores = map[string]func(t *testing.T) guarded{
	"file": func(t *testing.T) guarded {
		return guarded{url: "file://" + filepath.Join(t.TempDir(), "guard")}
	},
	"SQLite": func(t *testing.T) guarded {
		return guarded{url: "sqlite:///" + t.TempDir() + "/a%20b%3Fc%23.db"}
	},
	"Redis": func(t *testing.T) guarded {
		s := redistest.Start(t, redistest.WithPassword(hidden))
		return guarded{"redis://:" + hidden + "@" + s.Addr, s.Freeze, s.Thaw, s.Kill}
	},
	"PostgreSQL": func(t *testing.T) guarded {
		s, err := postgrestest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, s.Remove, s.Log) })
		return guarded{"postgres://holdfast:" + hidden + "@/postgres?host=" +
			url.QueryEscape(s.Dir), s.Freeze, s.Thaw, s.Kill}
	},
	"MariaDB": func(t *testing.T) guarded {
		s, err := mariadbtest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, s.Remove, s.Log) })
		return guarded{"mysql://root@/test?socket=" + url.QueryEscape(s.Socket), s.Freeze, s.Thaw,
			s.Kill}
	},
}

func removed(t *testing.T, remove func() error, log func() string) {
	if err := remove(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("log of the server:\n%s", log())
	}
}

// TestFence has scripts use each kind of store: first one after the other, then at once, then while
// the server hangs, and when it is gone.
func TestFence(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			takeTurns(t, g)
			atOnce(t, g)
			if g.kill != nil {
				outage(t, g)
			}
		})
	}
}

// takeTurns checks that scripts that are too late are told so.
func takeTurns(t *testing.T, g guarded) {
	if !strings.HasPrefix(g.url, "redis") {
		const missing = "holdfast: ...: the guard was never set up here: call holdfast fence init first\n"
		g.expect(t, 69, "", missing, "advance", "--token=1", "ledger")
		g.expect(t, 69, "", missing, "show", "ledger")
	}
	var all sync.WaitGroup
	for range 16 { // as many machines do when they are set up
		all.Go(func() { g.expect(t, 0, "", "", "init", "--timeout=2m") })
	}
	all.Wait()
	g.expect(t, 0, "", "", "init")
	g.expect(t, 0, "0\n", "", "show", "ledger")
	if r := runFence(t, []string{"HOLDFAST_TOKEN=5"}, "advance", "--on="+g.url,
		"ledger"); r != (result{}) {
		t.Errorf("with the token of the environment: %+v", r)
	}
	g.expect(t, 0, "", "", "advance", "--token=5", "ledger")
	g.expect(t, 0, "", "", "advance", "--token=9007199254740991", "LEDGER")
	g.expect(t, 0, "", "", "advance", "--token=9007199254740992", "LEDGER")
	g.expect(t, 0, "5\n", "", "show", "ledger")
	g.expect(t, 70, "",
		"holdfast: \"ledger\": stale token 4, the newest is 5: the lock was lost to a later holder\n",
		"advance", "--token=4", "ledger")
	g.expect(t, 0, "5\n", "", "show", "ledger")
	g.expect(t, 0, "", "", "advance", "--token=6", "ledger")
	g.expect(t, 70, "", "holdfast: \"ledger\": stale token 5, the newest is 6: ...\n", "advance",
		"--token=5", "ledger")
	g.expect(t, 0, "9007199254740992\n", "", "show", "LEDGER")
	const odd = "'; DROP TABLE holdfast_fence; -- \" \\ ../ü\n"
	g.expect(t, 0, "", "", "advance", "--token=3", "--", odd)
	g.expect(t, 0, "3\n", "", "show", odd)
	g.expect(t, 0, "6\n", "", "show", "ledger")
}

// atOnce checks many that advance at once: the largest token stays, and its script gets through.
// All others get through or are told that they are late.
func atOnce(t *testing.T, g guarded) {
	const many = 12
	var all sync.WaitGroup
	for token := 1; token <= many; token++ {
		all.Go(func() {
			r := g.fence(t, "advance", fmt.Sprintf("--token=%d", token), "--timeout=2m", "crowd")
			if r.code != 0 && r.code != 70 || token == many && r.code != 0 {
				t.Errorf("token %d: %+v", token, r)
			}
		})
	}
	all.Wait()
	g.expect(t, 0, fmt.Sprintf("%d\n", many), "", "show", "crowd")
}

// outage sees that a server that hangs, and one that is gone, end the call with an exit code of its
// own, which a script can tell from a lock that was lost.
func outage(t *testing.T, g guarded) {
	const late = "holdfast: ...no answer within 300ms...\n"
	g.freeze()
	g.expect(t, 69, "", late, "advance", "--token=1", "--timeout=300ms", "ledger")
	g.expect(t, 69, "", late, "show", "--timeout=300ms", "ledger")
	g.thaw()
	g.kill()
	for _, args := range [][]string{{"advance", "--token=1", "ledger"}, {"show", "ledger"},
		{"init"}} {
		g.expect(t, 69, "", "holdfast: ...://...: ...\n", args...)
	}
}

// TestFenceSecrets: no error of a driver or a server shows a login.
func TestFenceSecrets(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	maria, err := mariadbtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer removed(t, maria.Remove, maria.Log)
	redis := redistest.Start(t)
	for address, want := range map[string]int{
		"postgres://us-" + hidden + ":" + hidden + "@127.0.0.1:1/db":                    69,
		"postgres://us-" + hidden + ":" + hidden + "@127.0.0.1:1/db?sslmode=" + hidden:  64,
		"postgres://us-" + hidden + ":" + hidden + "@127.0.0.1:1/db?sslrootcert=/no":    64,
		"postgres://us-" + hidden + ":%27" + hidden + "%5C@127.0.0.1:1/db?passfile=/no": 69,
		"mysql://us-" + hidden + ":" + hidden + "@127.0.0.1:1/db":                       69,
		"mysql://us-" + hidden + ":" + hidden + "@127.0.0.1:1/db?tls=" + hidden:         64,
		"mysql://" + hidden + ":" + hidden + "@/test?socket=" +
			url.QueryEscape(maria.Socket): 69, // refused by the server
		"redis://" + hidden + ":" + hidden + "@127.0.0.1:1":         69,
		"redis://" + hidden + ":" + hidden + "@" + redis.Addr:       69, // refused by the server
		"sqlite:///no/such/" + "directory/db":                       69,
		"sqlite://user:" + hidden + "@/db":                          64,
		"postgres://user:" + hidden + "/@127.0.0.1:1/db":            64,
		"postgres://user:" + hidden + "@127.0.0.1:1/db?x=" + hidden: 64,
	} {
		for _, by := range []string{"environment", "flag"} {
			args, env := []string{"advance", "--token=1", "ledger"}, []string(nil)
			if by == "flag" {
				args = append(args, "--on="+address)
			} else {
				env = []string{"HOLDFAST_FENCE_URL=" + address}
			}
			if r := runFence(t, env, args...); r.code != want ||
				strings.Count(r.errors, "\n") != 1 {
				t.Errorf("%s by %s: %+v; want exit code %d", address, by, r, want)
			}
		}
	}
}

// TestFencePrint: the statement of a database in which programs may not create tables, without a
// server.
func TestFencePrint(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"postgres://h/db":             "CREATE TABLE IF NOT EXISTS holdfast_fence (...);\n",
		"postgresql://h/db?table=s.g": "CREATE TABLE IF NOT EXISTS s.g (...);\n",
		"mariadb://h/db":              "CREATE TABLE IF NOT EXISTS holdfast_fence (...InnoDB;\n",
		"sqlite:///no/such/file":      "CREATE TABLE IF NOT EXISTS holdfast_fence (...);\n",
	} {
		r := guarded{url: address}.fence(t, "init", "--print")
		before, after, _ := strings.Cut(want, "...")
		if r.code != 0 || !strings.HasPrefix(r.out, before) || !strings.HasSuffix(r.out, after) {
			t.Errorf("%s: %+v; want %q", address, r, want)
		}
	}
}

// TestFenceTable: a table of another name is one of its own.
func TestFenceTable(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	one := guarded{url: "sqlite://" + filepath.Join(t.TempDir(), "db")}
	other := guarded{url: one.url + "?table=other"}
	one.expect(t, 0, "", "", "init")
	one.expect(t, 0, "", "", "advance", "--token=9", "ledger")
	other.expect(t, 69, "", "holdfast: ...fence init first\n", "show", "ledger")
	other.expect(t, 0, "", "", "init")
	other.expect(t, 0, "0\n", "", "show", "ledger")
	one.expect(t, 0, "0\n", "", "show", "--on="+other.url, "ledger") // and not the environment's
}

// TestFenceWithPrograms: scripts and programs in Go guard one resource together.
func TestFenceWithPrograms(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	together := func(t *testing.T, g guarded, advance func(fence.Token) error) {
		g.expect(t, 0, "", "", "init")
		g.expect(t, 0, "", "", "advance", "--token=5", "ledger")
		if err := advance(4); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the program's older token: %v", err)
		}
		if err := advance(6); err != nil {
			t.Error(err)
		}
		g.expect(t, 70, "", "holdfast: ...the newest is 6: ...\n", "advance", "--token=5", "ledger")
	}
	t.Run("SQLite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "db")
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		table := sqlfence.Table{Dialect: sqlfence.SQLite}
		together(t, guarded{url: "sqlite://" + file}, func(token fence.Token) error {
			return table.Do(t.Context(), db, "ledger", token, func(*sql.Tx) error { return nil })
		})
	})
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Start(t)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr},
			ForceSingleClient: true, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		guard := redisfence.Guard{Eval: func(ctx context.Context, script string, keys []string,
			args []any) (any, error) {
			return rueidis.NewLuaScript(script).Exec(ctx, client, keys,
				redisfence.Strings(args)).ToAny()
		}}
		for query, prefix := range map[string]string{"": "fence:", "?prefix=%7Bx%7D": "{x}"} {
			together(t, guarded{url: s.URL() + query}, func(token fence.Token) error {
				_, err := guard.Do(t.Context(), prefix+"ledger", token)
				return err
			})
		}
	})
}

// TestFenceWithoutProgram: what databases need and is not there, or cannot be run, is named.
func TestFenceWithoutProgram(t *testing.T) {
	t.Parallel()
	for want, mode := range map[string]os.FileMode{
		"go install github.com/holdfast-go/holdfast/cmd/holdfast/holdfast-fence": 0,
		"permission denied": 0o600,
		"holdfast-fence cannot be started: exec format error": 0o700,
	} {
		alone := filepath.Join(t.TempDir(), "holdfast")
		if err := os.Link(holdfastPath, alone); err != nil {
			t.Fatal(err)
		}
		if mode != 0 {
			writeProgram(t, alone+"-fence", "no program", mode)
		}
		cmd := exec.Command(alone, "fence", "advance", "--token=1", "ledger")
		cmd.Env = []string{"HOLDFAST_FENCE_URL=postgres://u:" + hidden + "@h/db", "PATH=/no/such"}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		code := exitCode(t, cmd)
		if text := errs.String(); code != 69 || strings.Contains(text, hidden) ||
			!strings.Contains(text, want) {
			t.Errorf("exit code %d: %s; want 69 and %q", code, text, want)
		}
	}
}

// TestFenceCrontab runs the document's line as cron does: the job writes, and does not any more
// when a later holder has begun.
func TestFenceCrontab(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	locks, store := redistest.Start(t), stores["SQLite"](t)
	bin := t.TempDir()
	if err := os.Symlink(holdfastPath, filepath.Join(bin, "holdfast")); err != nil {
		t.Fatal(err)
	}
	post := filepath.Join(bin, "post-entries")
	writeProgram(t, post, "#!/bin/sh\necho posted\n", 0o700)
	places := strings.NewReplacer("redis://locks.example.com", locks.URL(),
		"postgres://books.example.com/ledger", store.url, "/usr/local/bin/post-entries", post)
	env, job := []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=/"}, ""
	for _, b := range blocksOf(t, "docs/fencing.md") {
		if b.kind != "crontab" {
			continue
		}
		for _, line := range b.lines {
			line = places.Replace(line)
			if fields := regexp.MustCompile(`^(?:\S+ ){5} *(.*)$`).FindStringSubmatch(
				line); fields != nil {
				job = fields[1]
			} else {
				env = append(env, line)
			}
		}
	}
	cron := func() result {
		cmd := exec.Command("/bin/sh", "-c", job)
		cmd.Env = env
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		code := exitCode(t, cmd)
		return result{code, out.String(), errs.String()}
	}
	store.expect(t, 0, "", "", "init")
	for range 2 {
		if r := cron(); r.code != 0 || r.out != "posted\n" || r.errors != "" {
			t.Errorf("%s: %+v", job, r)
		}
	}
	store.expect(t, 0, "", "", "advance", "--token=9007199254740992", "ledger")
	if r := cron(); r.code != 70 || r.out != "" ||
		!regexp.MustCompile(`^holdfast: "ledger": stale token \d+, the newest is 9007199254740992: .*\n$`).
			MatchString(r.errors) {
		t.Errorf("when a later holder has begun: %+v", r)
	}
}

// TestFenceProcessList: the program that has the drivers is not started with the address either.
func TestFenceProcessList(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := startCommand(t, exec.Command(holdfastPath, "fence", "advance", "--token=1", "--timeout=1h",
		"--on=postgres://"+hidden+"@"+silent.Addr().String()+"/db", "ledger"))
	testserver.Eventually(t, "the other program runs", func() error {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
		if err != nil {
			t.Fatalf("the process has ended: %v, stderr %s", err, p.stderr)
		}
		if !bytes.HasPrefix(line, []byte("holdfast-fence\x00")) {
			return fmt.Errorf("it is %q", line)
		}
		const want = "holdfast-fence\x00advance\x00--token=1\x00--timeout=1h0m0s\x00--\x00ledger\x00"
		if string(line) != want {
			t.Errorf("it is called as %q, want %q", line, want)
		}
		return nil
	})
}

// TestFenceHosts: of several hosts, one that hangs and one that may not be written are passed over.
func TestFenceHosts(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	dirs := []string{t.TempDir()}
	silent, err := net.Listen("unix", filepath.Join(dirs[0], ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, role := range []string{"standby", "primary"} {
		s, err := postgrestest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, s.Remove, s.Log) })
		dirs = append(dirs, s.Dir)
		one := guarded{url: "postgres://holdfast@/postgres?host=" + url.QueryEscape(s.Dir)}
		one.expect(t, 0, "", "", "init")
		if role == "standby" {
			db, err := sql.Open("pgx", s.DSN())
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.ExecContext(t.Context(),
				"ALTER ROLE holdfast SET default_transaction_read_only = on"); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := guarded{url: "postgres://holdfast@/postgres?host=" +
		url.QueryEscape(strings.Join(dirs, ","))}
	const timeout = "--timeout=12s" // of which the host that hangs takes a part
	all.expect(t, 0, "", "", "advance", timeout, "--token=7", "ledger")
	all.expect(t, 0, "7\n", "", "show", timeout, "ledger")
}
