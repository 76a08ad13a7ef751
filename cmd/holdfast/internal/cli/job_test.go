//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// guard is how long a test waits for what must come. It only ends tests that have failed.
const guard = 2 * time.Minute

// key is what the name of the tests is at the backend.
const key = "pre/name"

// outcome is how a job ended.
type outcome struct {
	code   int
	err    error // what Main would say
	stderr string
}

// job runs a script on backend.
func job(backend driver.Backend, o cli.Options, script string) outcome {
	if o.TTL == 0 {
		o.TTL = time.Hour
	}
	var stderr bytes.Buffer
	code, err := cli.RunOn(&stderr, func(context.Context) (driver.Backend, error) { return backend, nil }, o, script)
	return outcome{code, err, stderr.String()}
}

// memory returns a backend for a job, which closes it, and a client that sees what is left at the end.
func memory(t *testing.T) (backend, witness *memhold.Backend) {
	t.Helper()
	backend = memhold.New()
	witness = backend.Client()
	t.Cleanup(func() {
		entry, err := witness.Inspect(context.Background(), key)
		if err != nil || entry.Holder.Owner != "" || len(entry.Waiters) > 0 {
			t.Errorf("left behind: %+v, %v", entry, err)
		}
		witness.Close()
	})
	return backend, witness
}

// gate is a pipe by which a script says that it runs, and is told to go on: read x <gate.
type gate string

func newGate(t *testing.T) gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return gate(path)
}

// wait waits for a script to read from the gate. What open does lets it go on.
func (g gate) wait(t *testing.T) (open func()) {
	t.Helper()
	file, err := os.OpenFile(string(g), os.O_WRONLY, 0) // blocks until somebody reads
	if err != nil {
		t.Error(err)
		return func() {}
	}
	return func() { file.Close() }
}

func TestKeyAndEnvironment(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{}, `[ "$HOLDFAST_KEY" = name ] && [ "$HOLDFAST_TOKEN" -gt 0 ] && read x <`+string(g)+`; exit 4`)
	}()
	open := g.wait(t)
	entry, err := witness.Inspect(t.Context(), key)
	if owner := driver.ParseOwner(entry.Holder.Owner); err != nil || owner.PID != os.Getpid() || owner.Label != "sh" {
		t.Errorf("held by %+v, %v", owner, err)
	}
	open()
	if got := <-done; got.code != 4 || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
}

func TestBackendFails(t *testing.T) {
	for name, o := range map[string]cli.Options{"wait": {}, "no wait": {NoWait: true}, "bounded wait": {Wait: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			backend, _ := memory(t)
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Err: errors.New("server on holiday")})
			if got := job(backend, o, "exit 0"); got.code != 69 || !strings.Contains(got.err.Error(), "server on holiday") {
				t.Errorf("got %+v", got)
			}
		})
	}
	if code, err := cli.RunOn(&bytes.Buffer{}, func(context.Context) (driver.Backend, error) { return nil, errors.New("no such server") }, cli.Options{TTL: time.Hour}, "exit 0"); code != 69 || err.Error() != "test:: no such server" {
		t.Errorf("got %d, %v", code, err)
	}
}

// TestNoAnswer: a wait that ends without having heard from the backend is no sign of another holder.
func TestNoAnswer(t *testing.T) {
	backend, witness := memory(t)
	backend.Faults().Freeze()
	got := job(backend, cli.Options{TTL: 300 * time.Millisecond, Wait: 10 * time.Millisecond}, "exit 0")
	if got.code != 69 || got.err.Error() != "no answer from the backend within --wait 10ms" {
		t.Errorf("got %+v", got)
	}
	witness.Faults().Lose(key)
}

func TestBusy(t *testing.T) {
	backend, witness := memory(t)
	other := driver.Claim{Key: key, Owner: driver.NewOwner("/web1/7/other"), TTL: time.Hour}
	if _, err := witness.Acquire(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	defer witness.Release(context.Background(), other)
	for _, test := range []struct {
		o    cli.Options
		want string
	}{
		{cli.Options{NoWait: true}, `"name" is held by other (pid 7 on web1), lease ends in `},
		{cli.Options{Wait: 10 * time.Millisecond}, `"name" was not free within --wait 10ms; held by other (pid 7 on web1)`},
	} {
		client := backend.Client()
		if got := job(client, test.o, "exit 0"); got.code != 75 || !strings.Contains(got.err.Error(), test.want) {
			t.Errorf("got %+v, want %q", got, test.want)
		}
		test.o.Quiet = true
		client = backend.Client()
		if got := job(client, test.o, "exit 0"); got.code != 75 || got.stderr != "" {
			t.Errorf("got %+v, want silence", got)
		}
	}
	backend.Close()
}

// TestFrozenBackendEndsTheCommand: nobody says that the lock is lost, its lease just ends.
func TestFrozenBackendEndsTheCommand(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{TTL: 300 * time.Millisecond, Grace: guard}, `trap 'exit 3' TERM; while :; do read x <`+string(g)+`; done`)
	}()
	defer g.wait(t)()
	backend.Faults().Freeze()
	got := <-done
	if got.code != 70 || !strings.Contains(got.stderr, `lock on "name" (token `) || !strings.Contains(got.stderr, "validity ended") {
		t.Errorf("got %+v", got)
	}
	witness.Faults().Lose(key)
}

// TestLossAtTheRelease: the lock is gone when it is released, and nobody knows since when.
func TestLossAtTheRelease(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() { done <- job(backend, cli.Options{}, "read x <"+string(g)+"; exit 0") }()
	open := g.wait(t)
	if !witness.Faults().Lose(key) {
		t.Error("nobody held it")
	}
	open()
	if got := <-done; got.code != 70 || !strings.Contains(got.err.Error(), `lock on "name" (token `) {
		t.Errorf("got %+v", got)
	}
}

// TestReleaseFails: what the command says counts, and the failure is told.
func TestReleaseFails(t *testing.T) {
	backend, witness := memory(t)
	backend.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Times: 1, Err: errors.New("server on holiday")})
	got := job(backend, cli.Options{}, "exit 6")
	if got.code != 6 || got.err.Error() != "exit code 6" || !strings.Contains(got.stderr, "server on holiday") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("got %+v", got)
	}
	witness.Faults().Lose(key)
}

func TestSignalWhileOpening(t *testing.T) {
	var stderr bytes.Buffer
	code, err := cli.RunOn(&stderr, func(context.Context) (driver.Backend, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		select {} // it does not heed its context
	}, cli.Options{TTL: time.Hour}, "exit 0")
	if code != 130 || err.Error() != "exit code 130" || stderr.Len() > 0 {
		t.Errorf("got %d, %v, stderr %q", code, err, &stderr)
	}
}

// TestBounded: an end that does not come is not waited for.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cli.Bounded(func() { <-release })
		close(release)
		ran := false
		cli.Bounded(func() { ran = true })
		if !ran {
			t.Error("not run")
		}
	})
}
