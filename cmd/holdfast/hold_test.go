//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestHold: hold holds a lock without a command until a signal comes or the lock is lost.
func TestHold(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT, syscall.SIGUSR1} {
		dir := locks(t)
		p := start(t, dir, nil, "hold", longTTL, "name")
		if token, err := strconv.ParseUint(p.line(), 10, 64); err != nil || token == 0 {
			t.Errorf("token %d, %v", token, err)
		}
		start(t, dir, nil, "run", "--no-wait", "name", "--", "true").expectExit(75)
		p.signal(syscall.SIGWINCH) // does not end hold
		waiter := start(t, dir, nil, "hold", longTTL, "name")
		waiter.waiting()
		p.signal(sig)
		p.expectExit(0)
		if got := p.allStderr(); !regexp.MustCompile(
			`^holdfast: holding "name" \(token \d+\) until interrupted\n$`).MatchString(got) {
			t.Errorf("stderr is %q", got)
		}
		waiter.line()
		late := start(t, dir, nil, "hold", "--no-wait", "--quiet", "name")
		late.expectExit(75)
		if text := late.allStderr() + strings.Join(late.rest(), ""); text != "" {
			t.Errorf("says %q", text)
		}
		interrupted := start(t, dir, nil, "hold", longTTL, "name")
		interrupted.waiting()
		interrupted.signal(sig)
		interrupted.expectExit(128 + int(sig))
		waiter.signal(syscall.SIGTERM)
		waiter.expectExit(0)
	}

	dir := t.TempDir() + "/locks"
	p := start(t, dir, nil, "hold", "--ttl=4s", "name")
	p.line()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.expectExit(70)
	if got := lastLine(p.allStderr()); !strings.Contains(got, `lock on "name"`) ||
		!strings.Contains(got, "lost") {
		t.Errorf("stderr is %q", got)
	}
}

// TestHoldSeveral: hold holds all locks or none, prints a token for each, and ends with the loss of
// one.
func TestHoldSeveral(t *testing.T) {
	dir := locks(t)
	p := start(t, dir, nil, "hold", longTTL, "name", "a", "name")
	var tokens []string
	for range 3 {
		tokens = append(tokens, p.line())
	}
	if tokens[0] != tokens[2] || tokens[0] == tokens[1] || tokens[1] == "0" {
		t.Errorf("the tokens are %q", tokens)
	}
	late := start(t, dir, nil, "run", "--wait=4s", "b", "name", "--", "true")
	late.waiting()
	busy := start(t, dir, nil, "run", "--no-wait", "c", "a", "--", "true")
	busy.expectExit(75)
	if got := busy.allStderr(); !strings.HasPrefix(got, `holdfast: "a" is held by pid `) {
		t.Errorf("--no-wait says %q", got)
	}
	late.expectExit(75)
	if got := lastLine(late.allStderr()); !strings.HasPrefix(got,
		`holdfast: "name" was not free within --wait 4s; held by pid `) {
		t.Errorf("--wait says %q", got)
	}
	start(t, dir, nil, "run", "--no-wait", "b", "--", "true").expectExit(0)
	waiter := start(t, dir, nil, "run", "z", "name", "a", "--", "true")
	waiter.expectStderr(`holdfast: waiting for "a", held by `)
	p.signal(syscall.SIGTERM)
	p.expectExit(0)
	if got := p.allStderr(); got != "holdfast: holding \"name\", \"a\", \"name\" until interrupted\n" {
		t.Errorf("stderr is %q", got)
	}
	waiter.expectExit(0)
	waiter.expectStderr(`holdfast: acquired "z", "name", "a" after `)
}

// TestHoldShared: any number hold a lock with --shared, and nobody without it in the meantime. One
// that waits without --shared comes before those that ask later with it.
func TestHoldShared(t *testing.T) {
	dir := locks(t)
	first := start(t, dir, nil, "hold", longTTL, "--shared", "name", "other")
	first.line()
	first.line()
	second := start(t, dir, nil, "run", longTTL, "--shared", "name", "--", "sh", "-c",
		"echo ready; read x; true")
	second.expect("ready")
	start(t, dir, nil, "run", "--no-wait", "name", "--", "true").expectExit(75)
	writer := start(t, dir, nil, "hold", longTTL, "name")
	writer.waiting()
	busy := start(t, dir, nil, "run", "--no-wait", "--shared", "name", "--", "true")
	busy.expectExit(75)
	if got := busy.allStderr(); !strings.HasPrefix(got, `holdfast: "name" is held by `) {
		t.Errorf("--no-wait says %q", got)
	}
	first.signal(syscall.SIGTERM)
	first.expectExit(0)
	second.stdin.Close()
	second.expectExit(0)
	writer.line()
	start(t, dir, nil, "hold", "--no-wait", "--shared", "name").expectExit(75)
	writer.signal(syscall.SIGTERM)
	writer.expectExit(0)
}

// TestHoldWhoseTokenIsNotTaken: a signal ends hold although its stdout is blocked.
func TestHoldWhoseTokenIsNotTaken(t *testing.T) {
	dir := locks(t)
	cmd := exec.Command(holdfastPath, "hold", longTTL, "name")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
	cmd.Stdout = fullPipe(t)
	p := startCommand(t, cmd)
	p.expectStderr(`holding "name"`)
	p.signal(syscall.SIGTERM)
	p.expectExit(0)
}

// TestConflictExitCode: -E sets the exit code for a lock that another holds, and no other.
func TestConflictExitCode(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL)
	holder.expect("ready")
	late := start(t, dir, nil, "run", "--wait=4s", "--conflict-exit-code=0", "name", "--", "true")
	late.waiting()
	start(t, dir, nil, "run", "--no-wait", "-E", "9", "name", "--", "true").expectExit(9)
	start(t, dir, nil, "hold", "--no-wait", "-E9", "name").expectExit(9)
	start(t, dir, nil, "run", "-E", "9", "other", "--", "sh", "-c", "exit 75").expectExit(75)
	start(t, "/dev/null", nil, "run", "--no-wait", "-E", "9", "name", "--", "true").expectExit(69)
	late.expectExit(0)
	holder.stdin.Close()
	holder.expectExit(0)
}

// TestShell: -c runs a shell line in place of a command.
func TestShell(t *testing.T) {
	dir := locks(t)
	for _, args := range [][]string{
		{"run", "name", "-c", `echo "$HOLDFAST_KEY" | tr a-z A-Z; exit 3`},
		{"run", `--shell=echo "$HOLDFAST_KEY" | tr a-z A-Z; exit 3`, "name"},
	} {
		p := start(t, dir, nil, args...)
		p.expect("NAME")
		p.expectExit(3)
	}
}

// TestHoldPermits: hold --permits holds one of the permits, and prints token and slot.
func TestHoldPermits(t *testing.T) {
	dir := locks(t)
	slots := make(map[string]bool)
	for range 2 {
		p := start(t, dir, nil, "hold", longTTL, "--permits=2", "name")
		if token, err := strconv.ParseUint(p.line(), 10, 64); err != nil || token == 0 {
			t.Errorf("token %d, %v", token, err)
		}
		slot := p.line()
		slots[slot] = true
		defer func() {
			p.signal(syscall.SIGTERM)
			p.expectExit(0)
			if got := p.allStderr(); !regexp.MustCompile(
				`^holdfast: holding permit ` + slot + ` of "name" \(token \d+\) until interrupted\n$`,
			).MatchString(got) {
				t.Errorf("stderr is %q", got)
			}
		}()
	}
	if !slots["0"] || !slots["1"] {
		t.Errorf("slots %v", slots)
	}
	start(t, dir, nil, "run", "--no-wait", "--permits=2", "name", "--", "true").expectExit(75)
	start(t, dir, nil, "run", "--no-wait", "name", "--", "true").expectExit(0) // a lock
}
