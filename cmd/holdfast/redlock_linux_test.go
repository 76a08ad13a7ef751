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
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

// five is five independent servers. They keep nothing on disk: one that is killed and run again has forgotten everything.
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

// url has a bound for each node that no pause of a busy machine reaches.
func (f *five) url(query string) string {
	var hosts []string
	for _, s := range f.servers {
		hosts = append(hosts, s.Addr)
	}
	return "redlock://" + strings.Join(hosts, ",") + "?node-timeout=2s&" + query
}

// run starts holdfast run over the five, without a quarantine, with this program in the role echo.
func (f *five) run(flags ...string) *process { return f.runAt(f.url("restart-guard=0s"), flags...) }

func (f *five) runAt(url string, flags ...string) *process {
	f.t.Helper()
	cmd := exec.Command(holdfastPath, append(append([]string{"run"}, flags...), "name", "--", selfPath)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url, role.Variable+"=echo")
	return startCommand(f.t, cmd)
}

const lockKey = "lock:name"

// renewed waits until the lock is renewed twice on a server.
func (f *five) renewed(s *redistest.Server) {
	f.t.Helper()
	last := s.Int(f.t, "PTTL", lockKey)
	for seen := 0; seen < 2; {
		redistest.Eventually(f.t, "the lock is looked at", func() error {
			rest, err := s.Try("PTTL", lockKey)
			if err != nil {
				return err
			}
			if rest.(int64) > last {
				seen++
			}
			same := rest.(int64) == last
			last = rest.(int64)
			return redistest.Not(!same, "no change yet")
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
		redistest.Eventually(f.t, fmt.Sprintf("the lock is on server %d", i), func() error {
			n, err := s.Try("EXISTS", lockKey)
			return errors.Join(err, redistest.Not(n == int64(1), "it is not"))
		})
	}
}

func (f *five) nothingLeft() {
	f.t.Helper()
	for i, s := range f.servers {
		redistest.Eventually(f.t, fmt.Sprintf("nothing is left on server %d", i), func() error {
			keys, err := s.Try("KEYS", "*name*")
			return errors.Join(err, redistest.Not(err == nil && len(keys.([]any)) == 0, "%v", keys))
		})
	}
}

// TestRedlockOutlivesServers: a command that holds a lock over five servers keeps it, and keeps others out, whichever two are
// stopped, killed or restarted without their data under it.
func TestRedlockOutlivesServers(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	holder := f.run("--ttl=3s")
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

// TestRedlockExcludes: who waits is served when the holder ends, and when it is killed, after its lease.
func TestRedlockExcludes(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	first := f.run(longTTL)
	first.expect("ready")
	second := f.run("--ttl=2s")
	second.expectStderr(`waiting for "name", held by .*`)
	first.stdin.Close()
	first.expectExit(0)
	second.expect("ready")

	third := f.run(longTTL)
	third.expectStderr(`waiting for "name", held by .*`)
	second.signal(syscall.SIGKILL)
	second.expectExit(1000 + int(syscall.SIGKILL))
	second.rest() // its command is gone as well
	third.expect("ready")
	third.stdin.Close()
	third.expectExit(0)
	f.nothingLeft()
}

// TestRedlockWithoutMajority: with three of five down the error has a line for each.
func TestRedlockWithoutMajority(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	f.servers[0].Kill()
	f.servers[1].Freeze()
	f.servers[4].Kill()
	p := f.run()
	p.expectExit(69)
	text := p.allStderr()
	if !strings.Contains(text, "2 of 5 nodes agreed, 3 needed\n") {
		t.Errorf("stderr is %q", text)
	}
	for i, s := range f.servers {
		if n := len(regexp.MustCompile(`(?m)^  `+regexp.QuoteMeta(s.Addr)+`: .+$`).FindAllString(text, -1)); n != 1 {
			t.Errorf("server %d has %d lines: %q", i, n, text)
		}
	}
	f.servers[0].Run(t)
	f.servers[1].Thaw()
	f.servers[4].Run(t)
	f.nothingLeft()
}

// TestRedlockLosesMajority: when three of five stop under it, the command is ended while nobody else can have the lock.
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
	if text := p.allStderr(); !strings.Contains(text, `lock on "name"`) || !strings.Contains(text, " lost: ") {
		t.Errorf("stderr is %q", text)
	}
	for _, s := range f.servers[1:4] {
		s.Thaw()
	}
	f.nothingLeft()
}

// TestRedlockQuarantine: servers that were all just started grant nothing yet, which is said with the time it takes; and no lease may be
// longer than a restarted server keeps out for.
func TestRedlockQuarantine(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	p := f.runAt(f.url("restart-guard=1h"))
	p.expectExit(69)
	text := p.allStderr()
	said := regexp.MustCompile(`0 of 5 nodes agreed, 3 needed: too many in restart quarantine, for another (\S+)\n`).FindStringSubmatch(text)
	if said == nil {
		t.Fatalf("stderr is %q", text)
	}
	// Servers tell their uptime in whole seconds, so it may be a second more.
	if rest, err := time.ParseDuration(said[1]); err != nil || rest <= 0 || rest > time.Hour+time.Second {
		t.Errorf("quarantine for %q", said[1])
	}
	p = f.runAt(f.url("restart-guard=1h"), "--ttl=2h")
	p.expectExit(69)
	if text := p.allStderr(); !strings.Contains(text, "TTL 2h0m0s is longer than the restart quarantine of 1h0m0s") {
		t.Errorf("stderr is %q", text)
	}
	f.nothingLeft()
}

// TestRedlockOfAReplica: a server that is of no use does not keep the others from locking, and is told.
func TestRedlockOfAReplica(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	replica := f.servers[4]
	host, port, _ := strings.Cut(f.servers[0].Addr, ":")
	replica.Do(t, "REPLICAOF", host, port)
	p := f.run()
	p.expect("ready")
	p.stdin.Close()
	p.expectExit(0)
	if text := p.allStderr(); !strings.Contains(text, replica.Addr+": ") || !strings.Contains(text, "replica") || strings.Count(text, "\n") != 1 {
		t.Errorf("stderr is %q, want one line about the replica", text)
	}
	quiet := f.run("--quiet")
	quiet.expect("ready")
	quiet.stdin.Close()
	quiet.expectExit(0)
	if text := quiet.allStderr(); text != "" {
		t.Errorf("with --quiet, stderr is %q", text)
	}
	f.nothingLeft()
}
