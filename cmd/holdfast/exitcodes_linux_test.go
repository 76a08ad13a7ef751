package main_test

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// exitCodes returns the exit codes that the help of a command documents.
func exitCodes(t *testing.T, command string) (codes []string) {
	t.Helper()
	help, err := exec.Command(holdfastPath, command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(help), "Exit codes:\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range regexp.MustCompile(`(?m)^  (\S+) `).FindAllStringSubmatch(table, -1) {
		codes = append(codes, line[1])
	}
	return codes
}

// isCode reports whether an entry of the help includes an exit code.
func isCode(code int, entry string) bool {
	return entry == strconv.Itoa(code) || entry == "0-255" || entry == "128+N" && code > 128
}

// TestExitCodes: each situation ends with the code that the help documents for it. For each code of
// the help there is a situation here, or a test that is named below.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	down := redistest.Start(t)
	down.Kill()
	forgetful := redistest.Start(t)
	holder := start(t, dir, nil, "hold", longTTL, "held")
	holder.line()
	lasting := []string{"--", "sleep", "3600"}
	run := func(args ...string) []string { return append([]string{"run"}, args...) }
	signalled := func(p *process) {
		p.expectStderr(`waiting for "held".*\n`)
		p.signal(syscall.SIGTERM)
	}
	seen := map[string]bool{
		"run 71":      true, // by TestOutOfFiles; those below by TestEveryCommandOutOfFiles
		"doctor 0":    true, // by TestDoctor
		"doctor 1":    true, // by TestDoctor
		"doctor 2":    true, // by TestDoctor
		"leaks 1":     true, // by TestLeaks
		"deadlocks 1": true, // by TestDeadlocks
		"bench 128+N": true, // by TestBenchInterrupted
		"watch 0":     true, // by TestWatch
		"watch 69":    true, // by TestWatchOfALostServer
		"watch 128+N": true, // by TestWatchEnds
		"release 0":   true, // by TestRelease
		"release 1":   true, // by TestReleaseAsks
		"adopt 128+N": true, // by TestAdoptWhoseMessagesAreNotTaken
	}
	for _, command := range shortOfFiles {
		seen[command[0]+" 71"] = true
	}
	set := "--on=redlock://" + redistest.Start(t).Addr + "," + redistest.Start(t).Addr + "," +
		redistest.Start(t).Addr + "?restart-guard=0s&node-timeout=20s" // all must answer
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, test := range []struct {
		situation string
		args      []string
		code      int
		entry     string           // of the help
		then      func(p *process) // what to do to the process; may be nil
		stdout    *os.File         // nil: a pipe
	}{
		{"succeeds", run("n", "--", "true"), 0, "0-255", nil, nil},
		{"fails", run("n", "--", "sh", "-c", "exit 69"), 69, "0-255", nil, nil},
		{"dies", run("n", "--", "sh", "-c", "kill -9 $$"), 137, "0-255", nil, nil},
		{"no command", run("n"), 64, "64", nil, nil},
		{"lease too short", run("--ttl=0", "n", "--", "true"), 64, "64", nil, nil},
		{"no directory", run("--on=file:///dev/null", "n", "--", "true"), 69, "69", nil, nil},
		{"no server", run("--on="+down.URL(), "n", "--", "true"), 69, "69", nil, nil},
		{"held for too long", append(run("--ttl=4s", "--max-hold=4s", "n"), lasting...), 70, "70",
			nil, nil},
		{"busy", run("--no-wait", "held", "--", "true"), 75, "75", nil, nil},
		{"shared, busy", run("--shared", "--no-wait", "held", "--", "true"), 75, "75", nil, nil},
		{"shared, fails", run("--shared", "n", "--", "false"), 1, "0-255", nil, nil},
		{"busy for too long", run("--wait=2s", "held", "--", "true"), 75, "75", nil, nil},
		{"not executable", run("n", "--", "/dev/null"), 126, "126", nil, nil},
		{"not found", run("n", "--", "no-such-command"), 127, "127", nil, nil},
		{"signal in the wait", run("held", "--", "true"), 143, "128+N", signalled, nil},

		{"released", []string{"hold", longTTL, "n"}, 0, "0",
			func(p *process) { p.line(); p.signal(syscall.SIGINT) }, nil},
		{"held for too long", []string{"hold", "--ttl=4s", "--max-hold=4s", "n"}, 70, "70", nil,
			nil},
		{"no token", []string{"hold", "n"}, 74, "74", nil, full},
		{"no name", []string{"hold"}, 64, "other", nil, nil},
		{"no directory", []string{"hold", "--on=file:///dev/null", "n"}, 69, "other", nil, nil},
		{"busy", []string{"hold", "--no-wait", "held"}, 75, "other", nil, nil},
		{"signal in the wait", []string{"hold", "held"}, 143, "other", signalled, nil},

		{"shown", []string{"ls"}, 0, "0", nil, nil},
		{"no place", []string{"ls", "a", "b"}, 64, "64", nil, nil},
		{"no server", []string{"ls", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"no output", []string{"ls"}, 74, "74", nil, full},

		{"shown", []string{"inspect", "held"}, 0, "0", nil, nil},
		{"no servers", []string{"doctor"}, 64, "64", nil, nil},
		{"no server", []string{"doctor", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"no output", []string{"doctor", "--on=" + forgetful.URL()}, 74, "74", nil, full},

		{"no name", []string{"inspect"}, 64, "64", nil, nil},
		{"no server", []string{"inspect", "--on=" + down.URL(), "n"}, 69, "69", nil, nil},
		{"no output", []string{"inspect", "n"}, 74, "74", nil, full},

		{"no acquisition", []string{"release", "held"}, 64, "64", nil, nil},
		{"no server", []string{"release", "--yes", "--owner=x", "--on=" + down.URL(), "n"}, 69,
			"69", nil, nil},
		{"another", []string{"release", "--yes", "--owner=x", "held"}, 70, "70", nil, nil},

		{"none", []string{"leaks"}, 0, "0", nil, nil},
		{"two prefixes", []string{"leaks", "a", "b"}, 64, "64", nil, nil},
		{"no server", []string{"leaks", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"no output", []string{"leaks", "--help"}, 74, "74", nil, full},

		{"no terminal", []string{"watch"}, 64, "64", nil, nil},
		{"no output", []string{"watch", "--help"}, 74, "74", nil, full},

		{"two prefixes", []string{"board", "a", "b"}, 64, "64", nil, nil},
		{"no server", []string{"board", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"a port that is taken", []string{"board", "--listen=" + busyPort(t)}, 71, "71", nil, nil},
		{"no output", []string{"board", "--listen=127.0.0.1:0"}, 74, "74", nil, full},
		{"signalled", []string{"board", "--listen=127.0.0.1:0"}, 143, "128+N", func(p *process) {
			p.line()
			p.signal(syscall.SIGTERM)
		}, nil},

		{"none", []string{"deadlocks"}, 0, "0", nil, nil},
		{"two prefixes", []string{"deadlocks", "a", "b"}, 64, "64", nil, nil},
		{"no server", []string{"deadlocks", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"no output", []string{"deadlocks", "--help"}, 74, "74", nil, full},

		{"measured", []string{"bench", "--count=1"}, 0, "0", nil, nil},
		{"never", []string{"bench", "--count=0"}, 64, "64", nil, nil},
		{"no server", []string{"bench", "--on=" + down.URL()}, 69, "69", nil, nil},
		{"no output", []string{"bench", "--count=1"}, 74, "74", nil, full},

		{"no set", []string{"adopt"}, 64, "64", nil, nil},
		{"adopted", []string{"adopt", set}, 0, "0", nil, nil},
		{"no result", []string{"adopt", set}, 74, "74", nil, full},
		{"no servers", []string{"adopt", "--on=redlock://" + down.Addr + ",h.invalid:1,h.invalid:2"},
			69, "69", nil, nil},
	} {
		name := test.args[0] + ": " + test.situation
		cmd := exec.Command(holdfastPath, test.args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
		if test.stdout != nil {
			cmd.Stdout = test.stdout
		}
		p := startCommand(t, cmd)
		if test.then != nil {
			test.then(p)
		}
		p.ends()
		if p.code != test.code {
			t.Errorf("%s: exit code %d, want %d; stderr: %s", name, p.code, test.code, p.stderr)
		}
		seen[test.args[0]+" "+test.entry] = true
		entries := exitCodes(t, test.args[0])
		if test.entry == "other" { // the codes of run, without 0-255
			entries = exitCodes(t, "run")[1:]
		}
		if !slices.ContainsFunc(entries, func(entry string) bool {
			return isCode(test.code, entry) && (entry == test.entry || test.entry == "other")
		}) {
			t.Errorf("%s: exit code %d is not %s of the help, which has %q", name, test.code,
				test.entry, entries)
		}
	}
	for _, command := range []string{"run", "hold", "ls", "inspect", "doctor", "release", "leaks",
		"deadlocks", "bench", "watch", "board", "adopt"} {
		for _, entry := range exitCodes(t, command) {
			if !seen[command+" "+entry] {
				t.Errorf("%s: nothing ends with %s, which the help documents", command, entry)
			}
		}
	}
	holder.signal(syscall.SIGTERM)
	holder.expectExit(0)
}

// shortOfFiles are the commands, beside run, hold and board, that need a file for their backend.
var shortOfFiles = [][]string{{"ls"}, {"inspect", "n"}, {"release", "--yes", "--owner=x", "n"},
	{"leaks"}, {"deadlocks"}, {"bench", "--count=1"}, {"doctor"}, {"watch"}, {"adopt"}}

// TestEveryCommandOutOfFiles: with too few files each command says so by its exit code.
func TestEveryCommandOutOfFiles(t *testing.T) {
	t.Parallel()
	dir := "file://" + locks(t)
	server := redistest.Start(t)
	for _, args := range shortOfFiles {
		t.Run(args[0], func(t *testing.T) {
			url := map[string]string{"doctor": server.URL(),
				"adopt": "redlock://" + server.Addr + ",h.invalid:1,h.invalid:2"}[args[0]]
			for limit := 6; ; limit++ { // with fewer no Go program starts, so it ends by itself
				cmd := exec.Command("sh", append([]string{"-c", `ulimit -n "$0"; exec "$@"`,
					strconv.Itoa(limit), holdfastPath}, args...)...)
				cmd.Env = append(os.Environ(), "HOLDFAST_URL="+cmp.Or(url, dir), "TERM=xterm")
				var p *process
				if args[0] == "watch" {
					p, _ = startOnTerminal(t, 80, cmd)
				} else {
					p = startCommand(t, cmd)
				}
				p.ends()
				switch {
				case p.code == 71:
					return
				case p.code == 0 || limit > 40:
					t.Fatalf("with %d files it ends with %d, and with fewer never with 71; stderr: %s",
						limit, p.code, p.stderr)
				}
			}
		})
	}
}
