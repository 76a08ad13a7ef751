package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// etcdProgram builds the program that has the client, beside the command.
var etcdProgram = sync.OnceValue(func() error {
	args := append([]string{"build", "-buildvcs=false", "-o",
		filepath.Join(filepath.Dir(holdfastPath), "holdfast-etcd")}, buildFlags...)
	args = append(args, "./holdfast-etcd")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
})

// startEtcd starts a server, and returns it with its address for the command.
func startEtcd(t *testing.T) (s etcdtest.Server, url string) {
	t.Helper()
	if err := etcdProgram(); err != nil {
		t.Fatal(err)
	}
	s, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	s.EndWith(t, func() string { return "etcd" })
	return s, "etcd+unix://" + s.Socket
}

// TestEtcdExitCodes: what happens on etcd ends with the code that the same ends with elsewhere.
func TestEtcdExitCodes(t *testing.T) {
	t.Parallel()
	s, url := startEtcd(t)
	command := func(args ...string) *process {
		cmd := exec.Command(holdfastPath, args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
		return startCommand(t, cmd)
	}
	holder := command("hold", "--ttl=1m", "held")
	holder.line()
	for _, test := range []struct {
		situation string
		args      []string
		code      int
	}{
		{"succeeds", []string{"run", "n", "--", "true"}, 0},
		{"fails", []string{"run", "n", "--", "sh", "-c", "exit 69"}, 69},
		{"lease too short", []string{"run", "--ttl=500ms", "n", "--", "true"}, 64},
		{"bad address", []string{"run", "--on=etcd://h?x=y", "n", "--", "true"}, 64},
		{"no host", []string{"run", "--on=etcd://", "n", "--", "true"}, 64},
		{"called by nobody else", []string{"run", "n", "--", "sh", "-c",
			"env | grep _CALLER; test $? = 1"}, 0},
		{"no server", []string{"run", "--on=etcd+unix:///no/socket", "n", "--", "true"}, 69},
		{"held for too long", []string{"run", "--ttl=4s", "--max-hold=4s", "n", "--", "sleep",
			"3600"}, 70},
		{"busy", []string{"run", "--no-wait", "held", "--", "true"}, 75},
		{"shared, busy", []string{"run", "--shared", "--no-wait", "held", "--", "true"}, 75},
		{"shared", []string{"run", "--shared", "n", "--", "true"}, 0},
		{"busy for too long", []string{"run", "--wait=5s", "held", "--", "true"}, 75},
		{"not found", []string{"run", "n", "--", "no-such-command"}, 127},
		{"shown", []string{"ls"}, 0},
		{"described", []string{"inspect", "held"}, 0},
		{"nothing left behind", []string{"leaks"}, 0},
		{"examined", []string{"doctor", "--on=" + url}, 0},
		{"another", []string{"release", "--yes", "--owner=x", "held"}, 70},
	} {
		p := command(test.args...)
		if p.ends(); p.code != test.code {
			t.Errorf("%s: exit code %d, want %d; stderr: %s", test.situation, p.code, test.code,
				p.stderr)
		}
	}
	waiter := command("run", "--ttl=1m", "held", "--", "true")
	waiter.expectStderr(`waiting for "held".*\n`)
	holder.signal(syscall.SIGTERM)
	holder.expectExit(0)
	waiter.expectExit(0)

	everyExitCode(t, url, "etcd://127.0.0.1:1")
	looksTheSame(t, url, 0)

	lost := command("run", "--ttl=8s", "n", "--", "sh", "-c", "echo started; exec sleep 3600")
	lost.line()
	s.Freeze()
	list, silent := command("ls", "--timeout=5m"), command("ls", "--timeout=1s")
	silent.expectExit(69)
	silent.expectStderr("no answer within 1s")
	lost.expectExit(70)
	s.Thaw()
	list.expectExit(0) // it has waited for longer than a request may take
}

// TestEtcdProgramMissing: if only holdfast is installed, the error says what to install.
func TestEtcdProgramMissing(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "holdfast")
	if err := os.Link(holdfastPath, alone); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(alone, "run", "--on=etcd://u:hunter2@h", "n", "--", "true")
	cmd.Env = []string{"PATH=/no/path"}
	p := startCommand(t, cmd)
	p.expectExit(69)
	if text := p.allStderr(); strings.Contains(text, hidden) ||
		!strings.Contains(text, "go install github.com/holdfast-go/holdfast/cmd/holdfast/holdfast-etcd@") {
		t.Errorf("stderr: %s", text)
	}
}
