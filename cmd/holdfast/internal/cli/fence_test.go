package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/fence"
)

// TestFenceUsage: for each mistake the error says what is wrong and what is allowed, and the exit
// code is 64.
func TestFenceUsage(t *testing.T) {
	t.Setenv("HOLDFAST_TOKEN", "") // the tests may run under a lock, or several
	t.Setenv("HOLDFAST_TOKEN_1", "")
	t.Setenv("HOLDFAST_FENCE_URL", "")
	dir := filepath.Join(t.TempDir(), "guard")
	on := "--on=file://" + dir
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"advance", on, "a"},
			[]string{"no token", "HOLDFAST_TOKEN", "holdfast run", "--token"}},
		{[]string{"advance", on, "--token=", "a"}, []string{`--token ""`, "1 to 9007199254740992"}},
		{[]string{"advance", on, "--token=0", "a"},
			[]string{`--token "0"`, "1 to 9007199254740992"}},
		{[]string{"advance", on, "--token=-1", "a"}, []string{`--token "-1"`}},
		{[]string{"advance", on, "--token=+1", "a"}, []string{`--token "+1"`}},
		{[]string{"advance", on, "--token=1.5", "a"}, []string{`--token "1.5"`}},
		{[]string{"advance", on, "--token=9007199254740993", "a"}, []string{"9007199254740993"}},
		{[]string{"advance", on, "--token=18446744073709551617", "a"},
			[]string{"18446744073709551617"}},
		{[]string{"advance", on, "--token=redis://:" + strings.Repeat("secret", 9) + "@h", "a"},
			[]string{`--token "redis://..."`}}, // where the address was to be
		{[]string{"advance", on, "--token=1"}, []string{"0 arguments", "advance [flags] RESOURCE"}},
		{[]string{"advance", on, "--token=1", "a", "b"}, []string{"2 arguments"}},
		{[]string{"advance", on, "--token=1", ""}, []string{"name of the resource is empty"}},
		{[]string{"advance", on, "--token=1", "\xff"}, []string{"UTF-8"}},
		{[]string{"advance", on, "--token=1", strings.Repeat("x", 1025)},
			[]string{"1025 bytes", "1024"}},
		{[]string{"advance", "--token=1", "a"},
			[]string{"no address", "--on", "HOLDFAST_FENCE_URL"}},
		{[]string{"advance", "--on=", "--token=1", "a"}, []string{"no address"}},
		{[]string{"advance", "--on=x", "--token=1", "a"}, []string{"--on:", "file://, mysql://"}},
		{[]string{"advance", "--on=redlock://a,b,c", "--token=1", "a"}, []string{"another store"}},
		{[]string{"advance", on, "--timeout=0s", "--token=1", "a"},
			[]string{"--timeout 0s", "more than 0s"}},
		{[]string{"show", on}, []string{"0 arguments", "show [flags] RESOURCE"}},
		{[]string{"show", on, ""}, []string{"name of the resource is empty"}},
		{[]string{"show", on, "--token=1", "a"}, []string{"unknown flag: --token"}},
		{[]string{"init", on, "a"}, []string{"none is taken"}},
		{[]string{"init", on, "--print"}, []string{"file://", "no table"}},
		{[]string{"nonsense"}, []string{`"nonsense"`, "holdfast fence"}},
	} {
		code, out, err := run(t, append([]string{"fence"}, test.args...)...)
		if code != 64 || out != "" || strings.Count(err, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", test.args, code, out, err)
		}
		for _, want := range test.want {
			if !strings.Contains(err, want) {
				t.Errorf("%q: %s; want %q in it", test.args, err, want)
			}
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a mistake has made the directory")
	}
}

// TestFenceSources: what is on the command line counts, and else the environment.
func TestFenceSources(t *testing.T) {
	one, two := "file://"+filepath.Join(t.TempDir(), "1"), "file://"+filepath.Join(t.TempDir(), "2")
	t.Setenv("HOLDFAST_URL", "file:///no/such/directory") // that of the locks
	t.Setenv("HOLDFAST_FENCE_URL", one)
	t.Setenv("HOLDFAST_TOKEN", "7")
	for _, step := range []struct{ args, out string }{
		{"init", ""},
		{"init --on=TWO", ""},
		{"advance a", ""},
		{"advance --token=3 b", ""},
		{"advance --on=TWO c", ""},
		{"show a", "7\n"},
		{"show b", "3\n"},
		{"show c", "0\n"},
		{"show c --on=TWO", "7\n"},
	} {
		args := strings.Fields("fence " + step.args)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "TWO", two) // which may have a space
		}
		code, out, err := run(t, args...)
		if code != 0 || out != step.out || err != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q", step.args, code, out, err,
				step.out)
		}
	}
	t.Setenv("HOLDFAST_TOKEN", "")
	t.Setenv("HOLDFAST_TOKEN_1", "7") // under several locks
	if code, _, err := run(t, "fence", "advance", "a"); code != 64 ||
		!strings.Contains(err, "--token $HOLDFAST_TOKEN_1") {
		t.Errorf("of several locks: exit code %d, %s", code, err)
	}
	t.Setenv("HOLDFAST_TOKEN", "seven")
	if code, _, err := run(t, "fence", "advance", "a"); code != 64 ||
		!strings.Contains(err, `HOLDFAST_TOKEN "seven"`) {
		t.Errorf("exit code %d: %s", code, err)
	}
}

// TestFenceDamaged: what is no token in the place of one is no reason to let anybody in.
func TestFenceDamaged(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOLDFAST_FENCE_URL", "file://"+dir)
	t.Setenv("HOLDFAST_TOKEN", "7")
	if code, _, err := run(t, "fence", "advance", "a"); code != 0 {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*.fence"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%q, %v", kept, err)
	}
	if err := os.WriteFile(kept[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"advance", "show"} {
		if code, out, err := run(t, "fence", command, "a"); code != 69 || out != "" ||
			!strings.Contains(err, "want a token") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", command, code, out, err)
		}
	}
}

// TestFenceHelp: what is written out is what there is.
func TestFenceHelp(t *testing.T) {
	_, text, _ := run(t, "fence", "--help")
	for _, form := range backendurl.GuardForms() {
		if !strings.Contains(text, "  "+form+"\n") {
			t.Errorf("the help of fence does not mention %s", form)
		}
	}
	for _, want := range []string{"  0 ", "64 ", "69 ", "70 ", "71 ", "74 ", "HOLDFAST_TOKEN",
		"HOLDFAST_FENCE_URL", "advance", "init", "show", "crontab", "docs/fencing.md"} {
		if !strings.Contains(text, want) {
			t.Errorf("the help of fence says nothing of %q", want)
		}
	}
	code, text, err := run(t, "help", "stores")
	if code != 0 || err != "" || !strings.Contains(text, backendurl.GuardHelp()) {
		t.Errorf("exit code %d, stderr %q: %s", code, err, text)
	}
	for _, command := range []string{"advance", "show", "init"} {
		_, text, _ := run(t, "man", "fence", command)
		if !strings.Contains(text, "HOLDFAST-FENCE-"+strings.ToUpper(command)) ||
			!strings.Contains(text, `\fB--timeout\fP=15s`) {
			t.Errorf("manual page of %s: %s", command, text)
		}
	}
}

func TestFenceCompletion(t *testing.T) {
	for word, want := range map[string]string{"fen": "fence", "fence ad": "advance",
		"fence show --on postg": "postgres://\t", "fence init --on my": "mysql://\t",
		"fence advance --on sq": "sqlite://\t", "fence advance --to": "--token"} {
		if _, out, _ := run(t, append([]string{"__complete"},
			strings.Fields(word)...)...); !strings.HasPrefix(out, want) {
			t.Errorf("%s completes to %q", word, out)
		}
	}
}

// TestFenceGivesUpEarly: a driver that has less patience than the command is not told to have had
// all of it.
func TestFenceGivesUpEarly(t *testing.T) {
	defer func() { cli.OpenDatabase = nil }()
	cli.OpenDatabase = func(backendurl.Database, time.Duration) (cli.Database, error) {
		return nil, context.DeadlineExceeded
	}
	code, _, err := run(t, "fence", "advance", "--on=postgres://h/d", "--token=1",
		"--timeout=1h", "ledger")
	const want = "holdfast: postgres://h/d: context deadline exceeded\n"
	if code != 69 || err != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, err, want)
	}
}

// TestFenceBound: a driver that never comes back does not keep the command, and what the driver has
// to say in time is told.
func TestFenceBound(t *testing.T) {
	defer func() { cli.OpenDatabase = nil }()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		cli.OpenDatabase = func(_ backendurl.Database, patience time.Duration) (cli.Database,
			error) {
			if patience != time.Minute {
				t.Errorf("the driver is given %v", patience)
			}
			<-release
			return nil, errors.New("too late")
		}
		begin := time.Now()
		code, out, err := run(t, "fence", "advance", "--on=postgres://u:secret@h/d", "--token=1",
			"--timeout=1m", "ledger")
		const want = "holdfast: postgres://h/d: no answer within 1m0s\n"
		if took := time.Since(begin); code != 69 || out != "" || err != want ||
			took > time.Minute+time.Second {
			t.Errorf("exit code %d after %v, stdout %q, stderr %q", code, took, out, err)
		}
	})
}

// TestFenceExitCodes: the exit code says what an error of a driver means.
func TestFenceExitCodes(t *testing.T) {
	defer func() { cli.OpenDatabase = nil }()
	for cause, want := range map[error]int{
		&fence.StaleError{Token: 1, Newest: 2}:         70,
		fence.ErrInvalid:                               64,
		fence.ErrUnavailable:                           69,
		fence.ErrUnknown:                               69,
		&os.PathError{Op: "open", Err: syscall.ENOSPC}: 69,
		&net.OpError{Op: "dial", Err: syscall.EAGAIN}:  69, // from a socket that many wait for
		&os.PathError{Op: "open", Err: syscall.EMFILE}: 71,
		&net.OpError{Op: "dial", Err: syscall.ENFILE}:  71,
		fmt.Errorf("x: %w", error(syscall.ENOMEM)):     71,
	} {
		cli.OpenDatabase = func(backendurl.Database, time.Duration) (cli.Database, error) {
			return nil, fmt.Errorf("driver: %w", cause)
		}
		code, out, err := run(t, "fence", "show", "--on=postgres://h/d", "ledger")
		if code != want ||
			out != "" || strings.Count(err, "\n") != 1 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q; want %d", cause, code, out, err, want)
		}
	}
}
