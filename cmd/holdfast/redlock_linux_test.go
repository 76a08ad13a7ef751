package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// five is five independent servers. They keep nothing on disk: a server that is killed and run
// again has lost its data.
type five struct {
	t       *testing.T
	servers []*redistest.Server
}

func startFive(t *testing.T) *five {
	t.Helper()
	f := &five{t: t}
	for range 5 {
		f.servers = append(f.servers, redistest.Start(t))
	}
	return f
}

// url returns the address of the five. Its node timeout is longer than any pause of a busy machine.
func (f *five) url(query string) string {
	var hosts []string
	for _, s := range f.servers {
		hosts = append(hosts, s.Addr)
	}
	return "redlock://" + strings.Join(hosts, ",") + "?node-timeout=2s&" + query
}

// patient is url for what no server keeps waiting and all must answer: nobody waits for its node
// timeout.
func (f *five) patient(query string) string {
	return strings.Replace(f.url(query), "node-timeout=2s", "node-timeout=20s", 1)
}

// run starts holdfast run on the five, without a quarantine, with this program in the role echo.
func (f *five) run(flags ...string) *process { return f.runAt(f.url("restart-guard=0s"), flags...) }

func (f *five) runAt(url string, flags ...string) *process {
	f.t.Helper()
	cmd := exec.Command(holdfastPath, append(append([]string{"run"}, flags...), "name", "--",
		selfPath)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url, role.Variable+"=echo")
	return startCommand(f.t, cmd)
}

const lockKey = "lock:name"

// renewed waits until a server has seen two renewals of the lock.
func (f *five) renewed(s *redistest.Server) {
	f.t.Helper()
	last := s.Int(f.t, "PTTL", lockKey)
	for seen := 0; seen < 2; {
		testserver.Eventually(f.t, "the lock is looked at", func() error {
			rest, err := s.Try("PTTL", lockKey)
			if err != nil {
				return err
			}
			if rest.(int64) > last {
				seen++
			}
			same := rest.(int64) == last
			last = rest.(int64)
			return testserver.Not(!same, "no change yet")
		})
		if last < 0 {
			f.t.Fatalf("the lock is gone from %s", s.Addr)
		}
	}
}

// held waits until the lock is on all servers.
func (f *five) held() {
	f.t.Helper()
	for i, s := range f.servers {
		testserver.Eventually(f.t, fmt.Sprintf("the lock is on server %d", i), func() error {
			n, err := s.Try("EXISTS", lockKey)
			return errors.Join(err, testserver.Not(n == int64(1), "it is not"))
		})
	}
}

func (f *five) nothingLeft() {
	f.t.Helper()
	for i, s := range f.servers {
		testserver.Eventually(f.t, fmt.Sprintf("nothing is left on server %d", i), func() error {
			keys, err := s.Try("KEYS", "*name*")
			return errors.Join(err, testserver.Not(err == nil && len(keys.([]any)) == 0,
				"%v", keys))
		})
	}
}

// TestRedlockOutlivesServers: a command keeps its lock on five servers, and keeps others out, while
// any two of them are stopped, killed, or restarted without their data.
func TestRedlockOutlivesServers(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	holder := f.run("--ttl=6s")
	holder.expect("ready")
	works := func(when string, witness int) {
		t.Helper()
		f.renewed(f.servers[witness])
		fmt.Fprintln(holder.stdin, when)
		holder.expect("echo " + when)
		other := f.run("--no-wait")
		other.expectExit(75)
		other.expectStderr(`"name" is held by .*`)
	}
	f.servers[0].Freeze()
	f.servers[3].Freeze()
	works("two are stopped", 1)
	f.servers[0].Thaw()
	f.servers[3].Thaw()
	f.held()

	f.servers[1].Kill()
	f.servers[4].Kill()
	works("two are killed", 0)
	f.servers[1].Run(t)
	f.servers[4].Run(t)
	f.held()

	f.servers[0].Kill()
	f.servers[2].Kill()
	f.servers[0].Run(t)
	f.servers[2].Run(t)
	works("two others have forgotten", 1)
	f.held()

	holder.stdin.Close()
	holder.expectExit(0)
	f.nothingLeft()
	next := f.run()
	next.expect("ready")
	next.stdin.Close()
	next.expectExit(0)
	f.nothingLeft()
}

// TestRedlockExcludes: a waiter gets the lock when the holder ends, and after the lease of a holder
// that is killed.
func TestRedlockExcludes(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	first := f.run(longTTL)
	first.expect("ready")
	second := f.run("--ttl=6s")
	second.expectStderr(`waiting for "name", held by .*`)
	first.stdin.Close()
	first.expectExit(0)
	second.expect("ready")

	third := f.run(longTTL)
	third.expectStderr(`waiting for "name", held by .*`)
	second.signal(syscall.SIGKILL)
	second.expectExit(1000 + int(syscall.SIGKILL))
	second.rest() // its command has ended as well
	third.expect("ready")
	third.stdin.Close()
	third.expectExit(0)
	f.nothingLeft()
}

// TestRedlockShares: two commands share a lock on five servers, also while two are down, and a
// third one that does not share it waits for both.
func TestRedlockShares(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	first := f.run(longTTL, "--shared")
	first.expect("ready")
	f.servers[0].Kill()
	f.servers[3].Freeze()
	second := f.run(longTTL, "--shared")
	second.expect("ready")
	writer := f.run(longTTL)
	writer.expectStderr(`waiting for "name", held by .*`)
	f.run("--shared", "--no-wait").expectExit(75)
	f.servers[3].Thaw()
	first.stdin.Close()
	first.expectExit(0)
	f.run("--no-wait").expectExit(75)
	second.stdin.Close()
	second.expectExit(0)
	writer.expect("ready")
	f.servers[0].Run(t)
	writer.stdin.Close()
	writer.expectExit(0)
	f.nothingLeft()
}

// TestRedlockWithoutMajority: with three of five down, the error names each server once.
func TestRedlockWithoutMajority(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	f.servers[0].Kill()
	f.servers[1].Freeze()
	f.servers[4].Kill()
	p := f.run()
	p.expectExit(69)
	text := p.allStderr()
	if !strings.Contains(text, "2 of 5 nodes agreed, 3 needed: ") {
		t.Errorf("stderr is %q", text)
	}
	for i, s := range f.servers {
		if n := len(regexp.MustCompile(`needed: .*`+regexp.QuoteMeta(s.Addr)+
			`: `).FindAllString(text, -1)); n != 1 {
			t.Errorf("server %d is told of %d times: %q", i, n, text)
		}
	}
	f.servers[0].Run(t)
	f.servers[1].Thaw()
	f.servers[4].Run(t)
	f.nothingLeft()
}

// TestRedlockLosesMajority: if three of five servers stop, the command is ended before anybody else
// can have the lock.
func TestRedlockLosesMajority(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	p := f.run("--ttl=3s")
	p.expect("ready")
	for _, s := range f.servers[1:4] {
		s.Freeze()
	}
	p.expectExit(70)
	p.rest()
	if text := p.allStderr(); !strings.Contains(text, `lock on "name"`) ||
		!strings.Contains(text, " lost: ") {
		t.Errorf("stderr is %q", text)
	}
	for _, s := range f.servers[1:4] {
		s.Thaw()
	}
	f.nothingLeft()
}

// TestRedlockQuarantine: servers that were all just started grant nothing yet, and the error says
// for how long. No TTL may be longer than restart-guard.
func TestRedlockQuarantine(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	address := f.patient("restart-guard=1h")
	p := f.runAt(address, "--wait=1m")
	p.expectExit(69)
	text := p.allStderr()
	said := regexp.MustCompile(
		`0 of 5 nodes agreed, 3 needed: too many in restart quarantine, for another (\S+): `).FindStringSubmatch(text)
	if said == nil {
		t.Fatalf("stderr is %q", text)
	}
	// Servers tell their uptime in whole seconds, so the rest may be a second more.
	if rest, err := time.ParseDuration(said[1]); err != nil || rest <= 0 ||
		rest > time.Hour+time.Second {
		t.Errorf("quarantine for %q", said[1])
	}
	f.runAt(address, "--no-wait").expectExit(69)
	waiting := f.runAt(address)
	waiting.expectStderr(
		`holdfast: acquire "name": .*too many in restart quarantine, for another \S+: .*; waiting for that\n`)
	waiting.signal(syscall.SIGTERM)
	waiting.expectExit(128 + int(syscall.SIGTERM))
	p = f.runAt(address, "--ttl=2h")
	p.expectExit(64)
	if text := p.allStderr(); !strings.Contains(text,
		"--ttl 2h0m0s: must not be longer than restart-guard, which is 1h0m0s") {
		t.Errorf("stderr is %q", text)
	}
	f.nothingLeft()
}

// TestRedlockWaitsForQuarantine: a run that may wait for long enough waits until the quarantine of
// all servers is over.
func TestRedlockWaitsForQuarantine(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	for _, wait := range []string{"--quiet", "--wait=1h"} {
		p := f.runAt(f.url("restart-guard=6s"), "--ttl=5s", wait)
		p.expect("ready")
		p.stdin.Close()
		p.expectExit(0)
		if said := strings.Count(p.allStderr(), "waiting for that"); said > 1 || said == 1 &&
			wait == "--quiet" {
			t.Errorf("%s: stderr is %q", wait, p.stderr)
		}
	}
	f.nothingLeft()
}

// TestRedlockOfAReplica: a replica among the servers does not keep the others from locking, and is
// reported.
func TestRedlockOfAReplica(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	replica := f.servers[4]
	host, port, _ := strings.Cut(f.servers[0].Addr, ":")
	replica.Do(t, "REPLICAOF", host, port)
	address := f.patient("restart-guard=0s") // who is late would be reported, too
	p := f.runAt(address)
	p.expect("ready")
	p.stdin.Close()
	p.expectExit(0)
	if text := p.allStderr(); !strings.Contains(text, replica.Addr+": ") ||
		!strings.Contains(text, "replica") || strings.Count(text, "\n") != 1 {
		t.Errorf("stderr is %q, want one line about the replica", text)
	}
	quiet := f.runAt(address, "--quiet")
	quiet.expect("ready")
	quiet.stdin.Close()
	quiet.expectExit(0)
	if text := quiet.allStderr(); text != "" {
		t.Errorf("with --quiet, stderr is %q", text)
	}
	f.nothingLeft()
}

// TestRedlockWithDeadServers: two of five that are down, or have a wrong name, do not keep the
// others from locking. Each is reported once, and so is its return.
func TestRedlockWithDeadServers(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	f.servers[1].Kill()
	f.servers[3].Kill()
	named := f.url("restart-guard=0s&set=five") // set: the names of the servers do not matter
	p := f.runAt(named, "--ttl=6s")
	p.expect("ready")
	for _, i := range []int{1, 3} {
		p.expectStderr(regexp.QuoteMeta(f.servers[i].Addr) +
			`: down, the others go on without it: .*refused.*`)
	}
	f.servers[1].Run(t)
	p.expectStderr(regexp.QuoteMeta(f.servers[1].Addr) + `: is back`)
	p.stdin.Close()
	p.expectExit(0)

	// In a short run a server fails too seldom to count as down.
	short := f.runAt(strings.Replace(named, f.servers[0].Addr, "no-such-host.invalid:1", 1))
	short.expect("ready")
	short.stdin.Close()
	short.expectExit(0)
	text := short.allStderr()
	for _, name := range []string{"no-such-host.invalid:1", f.servers[3].Addr} {
		if n := strings.Count(text, name+": down"); n != 1 {
			t.Errorf("%s is told %d times: %q", name, n, text)
		}
	}

	// Without the parameter set, a client that names other servers is refused.
	other := f.runAt(strings.Replace(f.url("restart-guard=0s"), f.servers[0].Addr,
		"no-such-host.invalid:1", 1))
	other.expectExit(69)
	if text := other.allStderr(); !strings.Contains(text, "belong to another set") {
		t.Errorf("stderr is %q; want that the servers belong to another set", text)
	}
	f.servers[3].Run(t)
}
