//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// startLead starts holdfast lead with this program in a role.
func startLead(t *testing.T, dir, part string, flags ...string) *process {
	t.Helper()
	args := append(append([]string{"lead"}, flags...), "name", "--", selfPath)
	return start(t, dir, []string{role.Variable + "=" + part}, args...)
}

// standsBy waits until the process has said so, count times in all.
func (p *process) standsBy(count int) {
	p.t.Helper()
	p.expectStderr(`(?s)(standing by for "name", led by \S+ .*?){` + strconv.Itoa(count) + `}`)
}

// TestLeadWithAnEndlessGrace: a grace that no addition fits on is one, as for holdfast run.
func TestLeadWithAnEndlessGrace(t *testing.T) {
	p := startLead(t, locks(t), "echo", "--grace="+time.Duration(math.MaxInt64).String())
	p.expect("ready")
	p.signal(syscall.SIGTERM)
	p.expectExit(128 + int(syscall.SIGTERM))
}

// TestLead: one leads. When it is told to end, the next one leads.
func TestLead(t *testing.T) {
	dir := locks(t)
	first := startLead(t, dir, "echo", longTTL)
	first.expect("ready")
	first.expectStderr(`^holdfast: leading "name" \(token \d+\)\n$`)
	second := startLead(t, dir, "listener", longTTL)
	second.standsBy(1)
	first.signal(syscall.SIGTERM)
	first.expectExit(128 + int(syscall.SIGTERM))
	second.expect("ready")

	// A daemon may use other signals for something else, and need time to end.
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM} {
		second.signal(s)
		second.expect(strconv.Itoa(int(s)))
	}
	third := startLead(t, dir, "echo", longTTL)
	third.standsBy(1)
	second.stdin.Close()
	second.expectExit(0) // that of the command
	third.expect("ready")
	third.signal(syscall.SIGHUP) // which kills it
	third.expectExit(128 + int(syscall.SIGHUP))
}

// TestLeadAlone: of many that lead for a moment no two run at a time, and tokens rise.
func TestLeadAlone(t *testing.T) {
	dir, log := locks(t), file(t)
	var all []*process
	for range 4 {
		all = append(all, start(t, dir, []string{role.Variable + "=alone", "LOG=" + log}, "lead",
			longTTL, "name", "--", selfPath))
	}
	for _, p := range all {
		p.expectStderr(`(?s)(the command has ended with exit code 0.*){2}`)
	}
	for _, p := range all {
		p.signal(syscall.SIGTERM)
		// On standby, in a pause, or while the command runs: it may end well before the signal.
		p.expectExitOf(func(code int) bool { return code == 0 || code == 143 }, "0 or 143")
		if lines := p.rest(); len(lines) > 0 {
			t.Errorf("the command says %q", lines)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for _, line := range regexp.MustCompile(`\d+`).FindAllString(string(text), -1) {
		token, err := strconv.ParseUint(line, 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %d comes after %d, %v", token, last, err)
		}
		last = token
	}
}

// TestLeadKilled is TestKilled for lead: the command of a killed leader writes nothing after the
// next one begins.
func TestLeadKilled(t *testing.T) {
	dir, log := locks(t), file(t)
	run := func(mark string) *process {
		return start(t, dir, []string{role.Variable + "=writer", "LOG=" + log, "MARK=" + mark},
			"lead", longTTL, "name", "--", "sh", "-c", `"$0"; echo done`, selfPath)
	}
	first := run("1")
	first.expect("ready")
	second := run("2")
	second.standsBy(1)
	first.signal(syscall.SIGKILL)
	second.expect("ready")
	first.expectExit(1000 + int(syscall.SIGKILL))
	first.rest()
	second.signal(syscall.SIGTERM)
	second.expectExit(128 + int(syscall.SIGTERM))
	second.rest()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^1+2+$`).Match(text) {
		t.Error("the first one writes after the second")
	}
}

// TestLeadStopped: a leader that is stopped loses the lock, its command ends when it goes on, and
// it leads again when its turn has come.
func TestLeadStopped(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	first := startLead(t, dir, "slow", "--ttl=6s", "--grace=1h")
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL)
	second.standsBy(1)
	first.signal(syscall.SIGSTOP)
	second.expect("ready")
	first.signal(syscall.SIGCONT)
	first.expect("terminated")
	first.stdin.Close()
	first.expect("cleaned up")
	first.expectStderr(`lock on "name" \(token \d+\) lost: .*; the command gets SIGTERM, and SIGKILL in 1h`)
	first.standsBy(1)
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
	first.expect("ready")
	first.signal(syscall.SIGTERM)
	first.expect("terminated")
	first.ends()
}

// TestLeadRestarts: a command that ends is started again after a pause, as another term.
func TestLeadRestarts(t *testing.T) {
	p := start(t, locks(t), nil, "lead", "name", "-c", `echo "$HOLDFAST_KEY $HOLDFAST_TOKEN"; exit 3`)
	last := ""
	for range 3 {
		line := p.line()
		if !regexp.MustCompile(`^name \d{16}$`).MatchString(line) || line <= last {
			t.Errorf("after %q the command says %q, want a larger token", last, line)
		}
		last = line
	}
	p.expectStderr(`(?s)(holdfast: the command has ended with exit code 3\n.*){3}`)
	p.signal(syscall.SIGINT) // in the pause, unless the machine is busy for as long
	p.expectExitOf(func(code int) bool { return code == 128+int(syscall.SIGINT) || code == 3 },
		"130 or 3")
}

// TestLeadGoesOnAfterASignalForTheCommand: a daemon that has read its settings again, and ends much
// later, is started again.
func TestLeadGoesOnAfterASignalForTheCommand(t *testing.T) {
	p := startLead(t, locks(t), "listener", "--grace=0s")
	p.expect("ready")
	for range 2 { // nor is it killed when the grace is over
		p.signal(syscall.SIGHUP)
		p.expect(strconv.Itoa(int(syscall.SIGHUP)))
	}
	p.stdin.Close()
	p.expect("ready")
	p.signal(syscall.SIGTERM)
	p.ends()
}

// TestLeadIsSignalledOnStandby: a candidate that a signal ends on standby leaves nothing behind.
func TestLeadIsSignalledOnStandby(t *testing.T) {
	dir := locks(t)
	first := startLead(t, dir, "echo", longTTL)
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL)
	second.standsBy(1)
	second.signal(syscall.SIGWINCH) // ends nothing
	second.signal(syscall.SIGHUP)
	second.expectExit(128 + int(syscall.SIGHUP))
	first.signal(syscall.SIGTERM)
	first.expectExit(143)
}

// TestLeadMaxHold: another leads after so long, and the first one stands by again.
func TestLeadMaxHold(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	first := startLead(t, dir, "echo", "--ttl=6s", "--max-hold=6s")
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL, "--quiet")
	second.expect("ready")
	first.expectStderr(`maximum hold reached; the command gets SIGTERM, and SIGKILL in 3s`)
	first.standsBy(1)
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
	if got := second.allStderr(); got != "" {
		t.Errorf("--quiet says %q", got)
	}
	first.expect("ready")
	first.signal(syscall.SIGTERM)
	first.ends()
}

// TestLeadCannotStart: a command that is not there, or goes away, ends lead.
func TestLeadCannotStart(t *testing.T) {
	dir := locks(t)
	start(t, dir, nil, "lead", "name", "--", "no-such-command").expectExit(127)
	path := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nrm \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, nil, "lead", "name", "--", path)
	p.expectExit(127)
	bad := start(t, "", []string{"HOLDFAST_URL=redis://127.0.0.1:1"}, "lead", "name", "--", "true")
	bad.expectExit(69)
}
