//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

func TestTwoExcludeEachOther(t *testing.T) {
	dir := locks(t)
	first := startRole(t, dir, "echo", "--label=first")
	first.expect("ready")

	// For so long the backend may take to say who holds it.
	soon := startRole(t, dir, "echo", "--wait=4s")
	soon.waiting()
	late := startRole(t, dir, "echo", "--no-wait")
	late.expectExit(75)
	if got := late.allStderr(); !regexp.MustCompile(
		`^holdfast: "name" is held by first \(pid \d+ on .+\) for \d+s \(lease \d+s, renewed while it lives\)\n$`).MatchString(got) {
		t.Errorf("--no-wait says %q", got)
	}
	for _, name := range []string{"a//b@c", "s3://bucket/user@host", "redis://user@host"} {
		holder := start(t, dir, nil, "run", name, "--", "sh", "-c", "echo ready; read x")
		holder.expect("ready")
		busy := start(t, dir, nil, "run", "--no-wait", name, "--", "true")
		busy.expectExit(75)
		if got := busy.allStderr(); !strings.HasPrefix(got, "holdfast: "+strconv.Quote(name)+
			" is held by ") {
			t.Errorf("--no-wait says %q", got)
		}
		holder.stdin.Close()
		holder.ends()
	}
	zero := startRole(t, dir, "echo", "--wait=0s", "--quiet")
	zero.expectExit(75)
	if got := zero.allStderr(); got != "" {
		t.Errorf("--quiet says %q", got)
	}
	soon.expectExit(75)
	if got := lastLine(soon.allStderr()); !regexp.MustCompile(
		`^holdfast: "name" was not free within --wait 4s; held by first \(pid \d+ on .+\) for \d+s$`).MatchString(got) {
		t.Errorf("--wait says %q", got)
	}

	second := startRole(t, dir, "echo", longTTL)
	second.expectStderr(
		`holdfast: waiting for "name", held by first \(pid \d+ on .+\) for \d+s \(lease \d+s, renewed while it lives\), place 1 in the queue\n`)
	other := start(t, dir, nil, "run", "other name", "--", "true")
	other.expectExit(0)
	if got := other.allStderr(); got != "" {
		t.Errorf("who does not wait says %q", got)
	}
	select {
	case line := <-second.lines:
		t.Fatalf("the second runs: %q", line)
	default:
	}
	first.stdin.Close()
	first.expectExit(0)
	second.expect("ready")
	second.expectStderr(`holdfast: acquired "name" after \d+(\.\d)?m?s\n`)
	second.stdin.Close()
	second.expectExit(0)
}

// TestManyExcludeEachOther: no two commands run at the same time, all run, and tokens rise in the
// order of the runs.
func TestManyExcludeEachOther(t *testing.T) {
	dir, log := locks(t), file(t)
	const count = 12
	var all []*process
	for range count {
		all = append(all, start(t, dir, []string{role.Variable + "=alone", "LOG=" + log}, "run",
			longTTL, "name", "--", selfPath))
	}
	for _, p := range all {
		p.expectExit(0)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []uint64
	for line := range strings.Lines(string(text)) {
		token, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if len(tokens) != count || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != count {
		t.Errorf("tokens in the order of the runs: %v", tokens)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	p := startRole(t, locks(t), "listener")
	p.expect("ready")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGALRM,
		syscall.SIGCONT} {
		p.signal(s)
		p.expect(strconv.Itoa(int(s)))
	}
	p.stdin.Close()
	p.expectExit(0)
	if rest := p.rest(); len(rest) > 0 {
		t.Errorf("signals that nobody sent: %q", rest)
	}
}

// TestNohup: a signal that was ignored when holdfast started stays ignored.
func TestNohup(t *testing.T) {
	dir := locks(t)
	cmd := exec.Command("sh", "-c", `trap '' HUP; exec "$0" run name -- "$1"`,
		holdfastPath, selfPath)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, role.Variable+"=listener")
	p := startCommand(t, cmd)
	p.expect("ready")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	p.expect(strconv.Itoa(int(syscall.SIGUSR1)))
	p.stdin.Close()
	p.expectExit(0)
	if rest := p.rest(); len(rest) > 0 {
		t.Errorf("signals that were to be ignored: %q", rest)
	}
}

func TestExitCodeIsThatOfTheCommand(t *testing.T) {
	dir := locks(t)
	for script, want := range map[string]int{
		"exit 0":        0,
		"exit 1":        1,
		"exit 75":       75,
		"exit 255":      255,
		"kill -TERM $$": 143,
		"kill -KILL $$": 137,
		"kill -INT $$":  130,
	} {
		p := start(t, dir, nil, "run", "name", "--", "sh", "-c", script)
		p.expectExit(want)
		if got := p.allStderr(); got != "" {
			t.Errorf("%s: stderr is %q", script, got)
		}
	}
}

func TestSignalWhileWaiting(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL)
	holder.expect("ready")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		p := startRole(t, dir, "echo", longTTL)
		p.waiting()
		p.signal(syscall.SIGWINCH) // does not end the wait
		p.signal(s)
		p.expectExit(128 + int(s))
		if rest := p.rest(); len(rest) > 0 {
			t.Errorf("the command has run: %q", rest)
		}
	}
	// The others have left the queue, so the next one is the first.
	p := startRole(t, dir, "echo", longTTL)
	p.expectStderr(`place 1 in the queue`)
	p.signal(syscall.SIGTERM)
	p.expectExit(128 + int(syscall.SIGTERM))
	holder.stdin.Close()
	holder.expectExit(0)
}

func TestCommandThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/nonexistent/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(dir, "locks")
	for _, test := range []struct {
		command, stderr string
		code            int
	}{
		{"no-such-command", `holdfast: "no-such-command": command not found` + "\n", 127},
		{"/nonexistent/command", `holdfast: "/nonexistent/command": command not found` + "\n", 127},
		{os.DevNull, `holdfast: "` + os.DevNull + `": not executable: permission denied` + "\n",
			126},
		{dir, `holdfast: "` + dir + `": not executable: is a directory` + "\n", 126},
	} {
		p := start(t, unused, nil, "run", "name", "--", test.command)
		p.expectExit(test.code)
		if got := p.allStderr(); got != test.stderr {
			t.Errorf("got %q, want %q", got, test.stderr)
		}
		if _, err := os.Stat(unused); !os.IsNotExist(err) {
			t.Errorf("the directory was looked at: %v", err)
		}
	}
	// Only the start shows that this one cannot be executed.
	held := locks(t)
	p := start(t, held, nil, "run", "name", "--", script)
	p.expectExit(127)
	nothingLeft(t, held)
}

// TestOutOfFiles: when files are short the exit code is 71, whether the backend cannot be opened or
// COMMAND cannot be started.
func TestOutOfFiles(t *testing.T) {
	dir := locks(t)
	codes := make(map[int]bool)
	var backend, command bool
	for limit := 8; !codes[0]; limit++ { // with fewer files no Go program starts
		if limit > 100 {
			t.Fatal("it never runs")
		}
		cmd := exec.Command("sh", "-c", `ulimit -n "$1"; exec "$0" run name -- true`, holdfastPath,
			strconv.Itoa(limit))
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
		p := startCommand(t, cmd)
		p.ends()
		codes[p.code] = true
		if p.code != 0 && p.code != 71 {
			t.Errorf("exit code %d with %d files; stderr: %s", p.code, limit, p.stderr)
		}
		backend = backend || strings.Contains(p.stderr.String(), "backend unavailable")
		command = command || strings.Contains(p.stderr.String(), "cannot be started")
	}
	if !backend || !command {
		t.Errorf("the backend has failed: %v, the start has failed: %v; want both", backend, command)
	}
}

func TestBackendThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, unusable := range []string{plain, filepath.Join(dir, "missing", "too")} {
		for _, flag := range []string{"--wait=1h", "--no-wait"} {
			p := start(t, unusable, nil, "run", flag, "name", "--", "echo", "runs")
			p.expectExit(69)
			if got := p.allStderr(); !strings.Contains(got, unusable) {
				t.Errorf("stderr is %q, want it to name %s", got, unusable)
			}
			if rest := p.rest(); len(rest) > 0 {
				t.Errorf("the command has run: %q", rest)
			}
		}
	}
}

func TestRemovedLockEndsTheCommand(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"directory": os.RemoveAll,
		"keys": func(dir string) error {
			files, err := filepath.Glob(filepath.Join(dir, "keys", "*"))
			if err == nil && len(files) != 1 {
				return fmt.Errorf("keys: %q", files)
			}
			for _, f := range files {
				err = os.Remove(f)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "locks")
			p := startRole(t, dir, "slow", "--ttl=6s", "--grace=1h")
			p.expect("ready")
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			p.expect("terminated")
			p.expectStderr(
				`^holdfast: lock on "name" \(token \d+\) lost: .+; the command gets SIGTERM, and SIGKILL in 1h0m0s\n`)
			p.stdin.Close()
			p.expect("cleaned up")
			p.expectExit(70) // although the command has ended with 0
		})
	}
}

func TestLossKillsWhoIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	p := start(t, dir, []string{role.Variable + "=stubborn"}, "run", "--ttl=6s", "--grace=50ms",
		"name", "--",
		"sh", "-c", `trap '' TERM; "$0" & "$0"`, selfPath)
	p.expect("ready")
	p.expect("ready")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.expectExit(70)
	p.rest() // both have ended
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	p := startRole(t, locks(t), "slow", "--ttl=4s", "--max-hold=4s", "--grace=1h")
	p.expect("ready")
	p.expect("terminated")
	// The grace is shorter than the rest of the lease, so a slow command is killed before the lease
	// ends.
	p.expectStderr(`lost: maximum hold reached; the command gets SIGTERM, and SIGKILL in 2s\n`)
	p.expectExit(70)
	p.rest()
}

// TestFrozen: while holdfast is stopped, its lease is not renewed. When it goes on, it notices the
// loss and ends its command.
func TestFrozen(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	first := startRole(t, dir, "slow", "--ttl=4s")
	first.expect("ready")
	first.signal(syscall.SIGSTOP)
	second := startRole(t, dir, "echo", longTTL)
	second.expect("ready")
	first.signal(syscall.SIGCONT)
	first.expect("terminated")
	first.stdin.Close()
	first.expectExit(70)
	second.stdin.Close()
	second.expectExit(0)
}

func TestEnvironmentAndStreams(t *testing.T) {
	dir := locks(t)
	extra, writer := pipe(t)
	fmt.Fprintln(writer, "from file 3")
	writer.Close()
	cmd := exec.Command(holdfastPath, "run", "a name", "--", "sh", "-c",
		`echo "$HOLDFAST_KEY"; echo "$HOLDFAST_TOKEN"; cat; cat <&3; echo err >&2`)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, "HOLDFAST_KEY=outer",
		"HOLDFAST_TOKEN=outer")
	cmd.ExtraFiles = []*os.File{extra}
	p := startCommand(t, cmd)
	p.expect("a name")
	if token, err := strconv.ParseUint(p.line(), 10, 53); err != nil || token == 0 {
		t.Errorf("token %d, %v", token, err)
	}
	fmt.Fprintln(p.stdin, "from stdin")
	p.stdin.Close()
	p.expect("from stdin")
	p.expect("from file 3")
	p.expectExit(0)
	if got := p.allStderr(); got != "err\n" {
		t.Errorf("stderr is %q", got)
	}

	// Each variable is there once: some programs take the first of two.
	p = start(t, dir, []string{"HOLDFAST_KEY=outer", "HOLDFAST_TOKEN=outer"}, "run", "a name", "--",
		"env")
	p.expectExit(0)
	if text := strings.Join(p.rest(), "\n"); strings.Count(text, "HOLDFAST_KEY=") != 1 ||
		strings.Count(text, "HOLDFAST_TOKEN=") != 1 {
		t.Errorf("the environment is %s", text)
	}
}

func TestNamesOfAnyBytes(t *testing.T) {
	dir := locks(t)
	for _, name := range []string{strings.Repeat("x", 1024), "a/b/../c", "\x01\xff\n", "-"} {
		p := start(t, dir, nil, "run", name, "--", "sh", "-c",
			`printf %s "$HOLDFAST_KEY" | od -An -tx1 -v | tr -d ' \n'; echo`)
		p.expect(fmt.Sprintf("%x", name))
		p.expectExit(0)
	}
}

func TestDefaultBackend(t *testing.T) {
	dir := filepath.Join(temporaryDir, fmt.Sprintf("holdfast-%d", os.Geteuid()))
	env := []string{"HOLDFAST_URL=", role.Variable + "=echo"}
	first := start(t, "", env, "run", "name", "--", selfPath)
	first.expect("ready")
	notice := "holdfast: locks on this machine only, in " + dir +
		"; for several machines set --on or HOLDFAST_URL\n"
	second := start(t, "", env, "run", "--no-wait", "name", "--", selfPath)
	second.expectExit(75)
	if got := second.allStderr(); !strings.HasPrefix(got, notice) ||
		strings.Count(got, notice) != 1 {
		t.Errorf("stderr is %q", got)
	}
	// The address file: is the same directory, and needs no message.
	third := start(t, "", append(env, "HOLDFAST_URL=file:"), "run", "--no-wait", "--quiet", "name",
		"--", selfPath)
	third.expectExit(75)
	fourth := start(t, "", env, "run", "--quiet", "other", "--", "true")
	fourth.expectExit(0)
	if got := third.allStderr() + fourth.allStderr(); got != "" {
		t.Errorf("stderr is %q", got)
	}
	first.stdin.Close()
	first.expectExit(0)
	if got := first.allStderr(); got != notice {
		t.Errorf("stderr is %q, want %q", got, notice)
	}
	nothingLeft(t, dir)
}

// TestNobodyReadsStderr: a failed write to stderr ends neither the lock nor the command.
func TestNobodyReadsStderr(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL)
	holder.expect("ready")
	reader, writer := pipe(t)
	cmd := exec.Command(holdfastPath, "run", longTTL, "name", "--", "sh", "-c", "exit 6")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
	cmd.Stderr = writer
	reader.Close()
	p := startCommand(t, cmd)
	writer.Close()
	untilWaiting(t, dir, "name", 1)
	holder.stdin.Close()
	holder.expectExit(0)
	p.expectExit(6)
}

// fullPipe returns the writing end of a full pipe.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	_, writer := pipe(t)
	raw, err := writer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		for ; err == nil; _, err = syscall.Write(int(fd), []byte{0}) {
		}
	}); controlErr != nil || err != syscall.EAGAIN {
		t.Fatal(controlErr, err)
	}
	return writer
}

// TestStderrTakesNothing: a blocked stderr stops neither the command nor its signals, even if there
// is a message about the directory.
func TestStderrTakesNothing(t *testing.T) {
	for _, address := range []string{"", "file://" + locks(t)} {
		cmd := exec.Command(holdfastPath, "run", longTTL, "name", "--", selfPath)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+address, role.Variable+"=listener")
		cmd.Stderr = fullPipe(t)
		p := startCommand(t, cmd)
		p.expect("ready")
		p.signal(syscall.SIGUSR1)
		p.expect(strconv.Itoa(int(syscall.SIGUSR1)))
		p.stdin.Close()
		p.expectExit(0)
	}
}

// TestBackgroundProcessesOutliveTheCommand: they run on without the lock.
func TestBackgroundProcessesOutliveTheCommand(t *testing.T) {
	dir := locks(t)
	p := start(t, dir, []string{role.Variable + "=echo"}, "run", longTTL, "name", "--", "sh", "-c",
		`exec 3<&0; "$0" <&3 & exit 5`, selfPath)
	p.expect("ready")
	p.expectExit(5)
	nothingLeft(t, dir)
	start(t, dir, nil, "run", "--no-wait", "name", "--", "true").expectExit(0)
	fmt.Fprintln(p.stdin, "alive")
	p.expect("echo alive")
	p.stdin.Close()
	p.rest()
}
