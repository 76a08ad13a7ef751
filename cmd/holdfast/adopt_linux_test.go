package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// adopt runs holdfast adopt.
func (f *five) adopt(url string, flags ...string) *process {
	f.t.Helper()
	cmd := exec.Command(holdfastPath, append([]string{"adopt", "--on", url}, flags...)...)
	cmd.Env = os.Environ()
	return startCommand(f.t, cmd)
}

// TestAdopt: an operator replaces a dead server by an empty one. Programs with the new address are
// refused until adopt has succeeded, and programs with the old address from then on. If adopt
// fails, stderr says why.
func TestAdopt(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	old := f.url("restart-guard=0s")
	p := f.runAt(old)
	p.expect("ready")
	p.stdin.Close()
	p.expectExit(0)
	f.nothingLeft()
	formerSet := f.servers[1].Do(t, "GET", "holdfast:s").(string)
	dead := f.servers[2]
	dead.Kill()
	f.servers[2] = redistest.Start(t)
	now := f.url("restart-guard=0s")
	p = f.runAt(now)
	p.expectExit(69)
	for _, want := range []string{"too many belong to another set", dead.Addr, f.servers[2].Addr} {
		if text := p.allStderr(); !strings.Contains(text, want) {
			t.Errorf("before the servers are adopted: stderr is %q; want %q in it", text, want)
		}
	}

	p = f.adopt(now)
	p.expectExit(64)
	if text := p.allStderr(); !strings.Contains(text, "--longest") {
		t.Errorf("without --longest: stderr is %q", text)
	}
	f.servers[4].Freeze()
	p = f.adopt(now, "--longest=1s")
	p.expectExit(69)
	if text := p.allStderr(); !strings.Contains(text, f.servers[4].Addr) ||
		!strings.Contains(text, "call adopt again") {
		t.Errorf("without a server: stderr is %q; want %s in it, and what to do", text,
			f.servers[4].Addr)
	}
	f.servers[4].Thaw()
	p = f.adopt("redis://"+f.servers[0].Addr, "--longest=1s")
	p.expectExit(64)
	if text := p.allStderr(); !strings.Contains(text, "is no set of servers") {
		t.Errorf("of one server: stderr is %q", text)
	}

	p = f.adopt(f.patient("restart-guard=0s"), "--longest=1s")
	p.expect("redlock://" + strings.TrimPrefix(strings.Split(now, "?")[0], "redlock://") +
		": 5 servers belong to the set")
	p.expectExit(0)
	p = f.runAt(now)
	p.expect("ready")
	p.stdin.Close()
	p.expectExit(0)
	p = f.runAt(old)
	p.expectExit(69)
	if text := p.allStderr(); !strings.Contains(text, "belong to another set") {
		t.Errorf("with the old address: stderr is %q", text)
	}
	f.nothingLeft()

	// A server comes back with data from before the move.
	server := f.servers[1]
	server.Do(t, "SET", "holdfast:s", formerSet)
	p = f.adopt(now, "--longest=1s")
	p.expectExit(69)
	text := p.allStderr()
	for _, want := range []string{"set of nodes in use: nodes (" + server.Addr + ") belong to",
		"nothing has changed: see 'holdfast adopt --help'"} {
		if !strings.Contains(text, want) {
			t.Errorf("of a server with older data: stderr is %q; want %q in it", text, want)
		}
	}
	server.Do(t, "FLUSHALL")
	p = f.adopt(now)
	p.expectExit(0)
	if text := p.allStderr(); !strings.Contains(text, "these still grant locks") {
		t.Errorf("when no server was in another set: stderr is %q", text)
	}
}
