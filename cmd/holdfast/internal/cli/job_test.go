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

// guard bounds the waits of a test. It only ends tests that have failed.
const guard = 2 * time.Minute

// leaseToLose is the lease of a job that has to lose its lock after a third of the lease, and not
// before, however busy the machine is.
const leaseToLose = 6 * time.Second

// key is the key at the backend for the name of the tests.
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
	code, err := cli.RunOn(&stderr, func(context.Context) (driver.Backend, error) {
		return backend, nil
	}, o, script)
	return outcome{code, err, stderr.String()}
}

// memory returns a backend for a job, which closes it, and a second client. At the end of the test
// the client checks that no holder and no waiter is left.
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

// gate is a pipe from which a script reads: read x <gate. So a test knows that the script runs, and
// lets it go on.
type gate string

func newGate(t *testing.T) gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return gate(path)
}

// word is how a script names the gate. The directory for temporary files may have a space.
func (g gate) word() string { return "'" + string(g) + "'" }

// wait waits for a script to read from the gate. open lets it go on.
func (g gate) wait(t *testing.T) (open func()) {
	t.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		file, err := os.OpenFile(string(g), os.O_WRONLY, 0) // blocks until a script reads
		if err != nil {
			t.Error(err)
		}
		opened <- file
	}()
	select {
	case file := <-opened:
		return func() { file.Close() }
	case <-time.After(guard):
		t.Error("the script does not run")
		// The script may still open the gate, and must not wait for ever: the test waits for its
		// end.
		return func() {
			go func() { (<-opened).Close() }()
		}
	}
}

// exclusive is a backend that shares no locks.
type exclusive struct{ driver.Backend }

// TestShared: with --shared a lock is held together with others that say so, and a backend that
// cannot do that is an error of the command line.
func TestShared(t *testing.T) {
	backend, witness := memory(t)
	reader := driver.Claim{Key: key, Owner: "reader", TTL: time.Hour, Shared: true}
	hold := func(claim driver.Claim) {
		t.Helper()
		if r, err := witness.Acquire(t.Context(), claim); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire = %v, %v; want held", r.State, err)
		}
	}
	hold(reader)
	for _, test := range []struct {
		shared bool
		code   int
	}{{true, 0}, {false, 75}} {
		client := witness.Client()
		got := job(client, cli.Options{Shared: test.shared, NoWait: true}, "true")
		if got.code != test.code {
			t.Errorf("shared %v, beside a reader: %+v; want exit code %d", test.shared, got,
				test.code)
		}
	}
	if _, err := witness.Release(t.Context(), reader); err != nil {
		t.Error(err)
	}
	writer := driver.Claim{Key: key, Owner: "writer", TTL: time.Hour}
	hold(writer)
	if got := job(witness.Client(), cli.Options{Shared: true, NoWait: true}, "true"); got.code !=
		75 {
		t.Errorf("beside a writer: %+v; want exit code 75", got)
	}
	if _, err := witness.Release(t.Context(), writer); err != nil {
		t.Error(err)
	}
	got := job(exclusive{backend}, cli.Options{Shared: true}, "exit 5")
	if got.code != 64 || !strings.Contains(got.err.Error(), "--shared: test: cannot share locks") {
		t.Errorf("a backend that cannot share: %+v; want exit code 64, and its address", got)
	}
}

// TestSeveralNames: the command has the name and the token of each lock by its place, and nothing
// of an outer holdfast. The loss of one lock ends it.
func TestSeveralNames(t *testing.T) {
	for _, name := range []string{"HOLDFAST_KEY", "HOLDFAST_TOKEN", "HOLDFAST_TOKEN_9",
		"HOLDFAST_TOKEN_x"} {
		t.Setenv(name, "outer")
	}
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{TTL: leaseToLose, Names: []string{"name", "a b", "name"}},
			`[ "$HOLDFAST_KEY_1,$HOLDFAST_KEY_2,$HOLDFAST_KEY_3" = "name,a b,name" ] &&
			[ "$HOLDFAST_TOKEN_1" = "$HOLDFAST_TOKEN_3" ] && [ "$HOLDFAST_TOKEN_2" -gt 0 ] &&
			[ "$HOLDFAST_TOKEN_1" -gt 0 ] && [ "$HOLDFAST_TOKEN_2" != "$HOLDFAST_TOKEN_1" ] &&
			[ "${HOLDFAST_KEY-}${HOLDFAST_TOKEN-}${HOLDFAST_TOKEN_9-}" = "" ] &&
			[ "$HOLDFAST_TOKEN_x" = outer ] || exit 5; read x <`+g.word()+`; sleep 60`)
	}()
	open := g.wait(t)
	defer open()
	for _, key := range []string{"pre/name", "pre/a b"} {
		entry, err := witness.Inspect(t.Context(), key)
		if err != nil || entry.Holder.Owner == "" {
			t.Errorf("%q: held by %+v, %v", key, entry.Holder, err)
		}
	}
	witness.Faults().Lose("pre/a b")
	got := <-done
	if got.code != 70 || !strings.Contains(got.stderr, `lock on "a b" (token `) ||
		!strings.Contains(got.stderr, "the command gets SIGKILL") {
		t.Errorf("got %+v", got)
	}

	// With one name the variables have no numbers, and those of an outer holdfast are left out.
	t.Setenv("HOLDFAST_KEY_2", "outer")
	backend, _ = memory(t)
	if got := job(backend, cli.Options{},
		`[ "$HOLDFAST_KEY${HOLDFAST_KEY_1-}${HOLDFAST_KEY_2-}" = name ]`); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestKeyAndEnvironment(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{},
			`[ "$HOLDFAST_KEY" = name ] && [ "$HOLDFAST_TOKEN" -gt 0 ] && read x <`+g.word()+
				`; exit 4`)
	}()
	open := g.wait(t)
	entry, err := witness.Inspect(t.Context(), key)
	if owner := driver.ParseOwner(entry.Holder.Owner); err != nil || owner.PID != os.Getpid() ||
		owner.Label != "sh" {
		t.Errorf("held by %+v, %v", owner, err)
	}
	open()
	if got := <-done; got.code != 4 || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
}

func TestBackendFails(t *testing.T) {
	for name, o := range map[string]cli.Options{"wait": {}, "no wait": {NoWait: true},
		"bounded wait": {Wait: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			backend, _ := memory(t)
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
				Err: errors.New("server on holiday")})
			if got := job(backend, o, "exit 0"); got.code != 69 ||
				!strings.Contains(got.err.Error(), "server on holiday") {
				t.Errorf("got %+v", got)
			}
		})
	}
	if code, err := cli.RunOn(&bytes.Buffer{}, func(context.Context) (driver.Backend, error) {
		return nil, errors.New("no such server")
	}, cli.Options{TTL: time.Hour}, "exit 0"); code != 69 ||
		err.Error() != "test:: no such server" {
		t.Errorf("got %d, %v", code, err)
	}
}

// TestNoAnswer: if the backend never answers, the exit code is not that of a busy lock.
func TestNoAnswer(t *testing.T) {
	backend, witness := memory(t)
	backend.Faults().Freeze()
	got := job(backend, cli.Options{TTL: 300 * time.Millisecond, Wait: 10 * time.Millisecond},
		"exit 0")
	if got.code != 69 || got.err.Error() != "no answer from the backend within --wait 10ms" {
		t.Errorf("got %+v", got)
	}
	witness.Faults().Lose(key)
}

// In TestBusy time stands still until the backend has answered, however busy the machine is.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			{cli.Options{NoWait: true},
				`"name" is held by other (pid 7 on web1) (lease 1h0m0s, renewed while it lives)`},
			{cli.Options{Wait: 10 * time.Millisecond},
				`"name" was not free within --wait 10ms; held by other (pid 7 on web1)`},
		} {
			client := backend.Client()
			if got := job(client, test.o, "exit 0"); got.code != 75 ||
				!strings.Contains(got.err.Error(), test.want) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
			test.o.Quiet = true
			client = backend.Client()
			if got := job(client, test.o, "exit 0"); got.code != 75 || got.stderr != "" {
				t.Errorf("got %+v, want silence", got)
			}
		}
		backend.Close()
	})
}

// TestFrozenBackendEndsTheCommand: the lock is lost because its lease ends without a renewal.
func TestFrozenBackendEndsTheCommand(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{TTL: leaseToLose, Grace: guard},
			`trap 'exit 3' TERM; while :; do read x <`+g.word()+`; done`)
	}()
	defer g.wait(t)()
	backend.Faults().Freeze()
	got := <-done
	if got.code != 70 || !strings.Contains(got.stderr, `lock on "name" (token `) ||
		!strings.Contains(got.stderr, "validity ended") {
		t.Errorf("got %+v", got)
	}
	witness.Faults().Lose(key)
}

// TestLossAtTheRelease: a lock that turns out to be gone at its release counts as lost.
func TestLossAtTheRelease(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() { done <- job(backend, cli.Options{}, "read x <"+g.word()+"; exit 0") }()
	open := g.wait(t)
	if !witness.Faults().Lose(key) {
		t.Error("nobody held it")
	}
	open()
	if got := <-done; got.code != 70 ||
		!strings.Contains(got.err.Error(), `lock on "name" (token `) {
		t.Errorf("got %+v", got)
	}
}

// TestReleaseFails: the exit code is the command's, and the failed release is reported once,
// whether the release in the background succeeds or not.
func TestReleaseFails(t *testing.T) {
	for _, times := range []int{1, 0} { // 0: always
		backend, witness := memory(t)
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Times: times,
			Err: errors.New("server on holiday")})
		got := job(backend, cli.Options{}, "exit 6")
		if got.code != 6 || got.err.Error() != "exit code 6" ||
			!strings.Contains(got.stderr, "server on holiday") ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("fails %d times: got %+v", times, got)
		}
		witness.Faults().Lose(key)
	}
}

func TestSignalWhileOpening(t *testing.T) {
	var stderr bytes.Buffer
	code, err := cli.RunOn(&stderr, func(context.Context) (driver.Backend, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		select {} // open ignores its context
	}, cli.Options{TTL: time.Hour}, "exit 0")
	if code != 130 || err.Error() != "exit code 130" || stderr.Len() > 0 {
		t.Errorf("got %d, %v, stderr %q", code, err, &stderr)
	}
}

// TestBounded: Bounded returns although its function does not.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := cli.NewCleanup()
		defer after.End()
		release := make(chan struct{})
		after.Bounded(func() { <-release })
		close(release)
		ran := false
		after.Bounded(func() { ran = true })
		if !ran {
			t.Error("not run")
		}
	})
}

// TestSignalsEndTheCleanup: after one signal the cleanup has a second, after two none. A signal
// that ends no program changes nothing.
func TestSignalsEndTheCleanup(t *testing.T) {
	for _, test := range []struct {
		signals []os.Signal
		want    time.Duration
	}{
		{nil, 10 * time.Second},
		{[]os.Signal{syscall.SIGWINCH}, 10 * time.Second},
		{[]os.Signal{syscall.SIGTERM}, time.Second},
		{[]os.Signal{syscall.SIGTERM, syscall.SIGWINCH}, time.Second},
		{[]os.Signal{syscall.SIGINT, syscall.SIGTERM}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, len(test.signals))
			for _, s := range test.signals {
				signals <- s
			}
			after := cli.NewCleanup()
			after.Heed(signals)
			release := make(chan struct{})
			begin := time.Now()
			after.Bounded(func() { <-release })
			if took := time.Since(begin); took != test.want {
				t.Errorf("%v: took %v, want %v", test.signals, took, test.want)
			}
			close(release)
			after.End()
		})
	}
}
