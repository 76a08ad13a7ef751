package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// In TestPostgres the command locks in a database. Each situation ends with the same code as on
// other servers, and nothing shows the user or the password.
func TestPostgres(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "holdfast") // whatever was built beside the command
	if err := os.Link(holdfastPath, alone); err != nil {
		t.Fatal(err)
	}
	without := exec.Command(alone, "run", "--on=postgres://u:"+hidden+"@h/db", "n", "--", "true")
	without.Env = []string{"PATH=/no/such"}
	p := startCommand(t, without)
	p.expectExit(69)
	if text := p.allStderr(); !strings.Contains(text, "go install") ||
		strings.Contains(text, hidden) {
		t.Errorf("without holdfast-postgres: %q; want what to install", text)
	}
	if err := buildBeside("holdfast-postgres"); err != nil {
		t.Fatal(err)
	}
	c := redistest.NewCertificates(t)
	port := testserver.FreePort(t)
	s, err := postgrestest.StartTLS(port, c.CA, c.ServerCert, c.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, s.Remove, s.Log) })
	execute(t, "pgx", s.DSN(), "ALTER ROLE holdfast PASSWORD '"+hidden+"'",
		"CREATE DATABASE empty")
	place := fmt.Sprintf("127.0.0.1:%d/postgres", port)
	trust := "?sslmode=verify-full&sslrootcert=" + c.CA
	url := "postgres://holdfast:" + hidden + "@" + place + trust
	pass := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(pass, []byte("*:*:*:*:"+hidden+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(url string, env []string, args ...string) *process {
		t.Helper()
		cmd := exec.Command(holdfastPath, args...)
		cmd.Env = slices.Concat(os.Environ(), []string{"HOLDFAST_URL=" + url}, env)
		return startCommand(t, cmd)
	}
	ends := func(code int, p *process, says ...string) {
		t.Helper()
		p.expectExit(code)
		text := p.allStderr()
		if strings.Contains(text, hidden) || code == 69 && strings.Contains(text, `"holdfast"`) {
			t.Errorf("stderr tells what is secret: %s", text)
		}
		for _, say := range says {
			if !strings.Contains(text, say) {
				t.Errorf("stderr is %q; want it to say %q", text, say)
			}
		}
	}
	flag := func(url string, args ...string) *process {
		t.Helper()
		return startCommand(t, exec.Command(holdfastPath, args[0], "--on="+url, "--on", url, "n",
			"--", "sh", "-c", args[1]))
	}
	trueUnderLock := []string{"run", "n", "--", "true"}

	ends(69, run(url, nil, trueUnderLock...), "?create=true")
	ends(0, run(url+"&create=true", nil, trueUnderLock...))
	ends(0, run(url, nil, trueUnderLock...))
	ends(3, run(strings.Replace(url, "postgres://", "postgresql://", 1), nil, "run", "n", "--",
		"sh", "-c", "exit 3"))
	// The command under the lock gets no address that it did not have before.
	ends(0, flag(url, "run", `! env | grep -v PWD | grep -e '`+hidden+`' -e HOLDFAST_FENCE_CALLER`))
	byEnvironment := "postgres://holdfast@" + place + trust
	ends(0, run(byEnvironment, []string{"PGPASSWORD=" + hidden}, trueUnderLock...))
	ends(0, run(byEnvironment, []string{"PGPASSFILE=" + pass}, trueUnderLock...))
	ends(0, run(byEnvironment+"&passfile="+pass, nil, trueUnderLock...))
	ends(69, run(byEnvironment, []string{"PGPASSWORD=not-" + hidden}, trueUnderLock...))
	ends(69, run(strings.Replace(url, ":"+hidden, ":not-"+hidden, 1), nil, trueUnderLock...))
	ends(69, run(strings.Replace(url, "/postgres?", "/empty?", 1), nil, trueUnderLock...))
	ends(69, run(strings.Replace(url, "/postgres?", "/none?", 1), nil, trueUnderLock...))
	ends(69, run("postgres://holdfast:"+hidden+"@127.0.0.1:1/db", nil, trueUnderLock...))
	for _, wrong := range []string{"?x=" + hidden, "?sslmode=" + hidden, "?create=" + hidden,
		"?sslrootcert=" + c.CA, "?passfile=/no/such", "/" + hidden + "@h"} {
		ends(64, run("postgres://holdfast:"+hidden+"@"+place+wrong, nil, trueUnderLock...))
	}
	ends(64, run(url, nil, "run", "--ttl=0", "n", "--", "true"))

	holder := run(url, nil, "hold", longTTL, "held")
	holder.line()
	ends(75, run(url, nil, "run", "--no-wait", "held", "--", "true"))
	ends(75, run(url, nil, "run", "--wait=5s", "held", "--", "true"))
	ends(75, run(url, nil, "run", "--shared", "--no-wait", "held", "--", "true"))
	gone := run(url, nil, "run", "held", "--", "true")
	gone.expectStderr(`waiting for "held".*\n`)
	gone.signal(syscall.SIGTERM)
	ends(143, gone)
	waiter := run(url, nil, "run", "held", "--", "true")
	waiter.expectStderr(`waiting for "held".*\n`)
	listed := run(url, nil, "ls")
	ends(0, listed)
	if text := strings.Join(listed.rest(), "\n"); !strings.Contains(text, "held ") {
		t.Errorf("ls shows %s", text)
	}
	ends(0, run(url, nil, "inspect", "held"))
	holder.signal(syscall.SIGINT)
	ends(0, holder)
	ends(0, waiter)

	everyExitCode(t, url, "postgres://127.0.0.1:1/db")
	doctor := run(url, nil, "doctor")
	doctor.expectExitOf(func(code int) bool { return code <= 1 }, "0 or 1")
	if text := strings.Join(doctor.rest(), "\n"); !strings.Contains(text, "fsync") {
		t.Errorf("doctor says of a server with fsync off: %s", text)
	}

	looksTheSame(t, url, 1)
	execute(t, "pgx", s.DSN(), "CREATE ROLE looks LOGIN PASSWORD '"+hidden+"'",
		"GRANT USAGE ON SCHEMA holdfast TO looks",
		"GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO looks")
	mayOnlyLook(t, url, strings.Replace(url, "holdfast:", "looks:", 1), 1)

	loser := run(url, nil, "run", "--ttl=9s", "lost", "--", "sleep", "3600")
	testserver.Eventually(t, "the lock is taken away", func() error {
		return testserver.Not(taken(t, s.DSN()) == 1, "it is not held yet")
	})
	ends(70, loser)
}

// taken takes the lock "lost" from its holder, and returns how many held it.
func taken(t *testing.T, address string) int {
	t.Helper()
	return int(changed(t, "pgx", address,
		"UPDATE holdfast.locks SET owner = NULL WHERE key = 'lost' AND owner IS NOT NULL"))
}
