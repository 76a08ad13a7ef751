package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// taker starts a process that takes locks one by one.
func (s *site) taker(label string) *process {
	s.t.Helper()
	cmd := exec.Command(selfPath)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.url, "LABEL="+label,
		role.Variable+"=taker")
	return startCommand(s.t, cmd)
}

// take makes a process take locks that are free.
func (p *process) take(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.want(name)
		p.expect("has " + strings.TrimPrefix(name, "+"))
	}
}

// want makes a process wait for a lock.
func (p *process) want(name string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, name); err != nil {
		p.t.Fatal(err)
	}
}

// leave ends takers.
func leave(takers ...*process) {
	for _, p := range takers {
		p.t.Helper()
		p.stdin.Close()
		p.expectExit(0)
	}
}

// TestDeadlocks: processes that wait for each other are named with what they hold and wait for, as
// long as they do, by an operator without the right to write. Nothing else is.
func TestDeadlocks(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		backup, report, audit := s.taker("backup"), s.taker("report"), s.taker("audit")
		backup.take("accounts")
		report.take("ledger")
		audit.take("log")
		nothing := func(what string) {
			t.Helper()
			if out, err := s.ask(0, "deadlocks", "--after=0s"); out+err != "" {
				t.Errorf("%s: %q, %q", what, out, err)
			}
		}
		nothing("nobody waits")
		audit.want("accounts")
		backup.want("ledger")
		s.says(0, []string{"inspect", "accounts"}, "  waiting  1")
		s.says(0, []string{"inspect", "ledger"}, "  waiting  1")
		nothing("a queue and a chain")

		report.want("accounts")
		s.says(0, []string{"inspect", "accounts"}, "  waiting  2")
		out, stderr := s.ask(1, "deadlocks", "--after=10ms")
		lines := []string{"possible deadlock of 2 processes:"}
		for _, line := range []string{"backup (pid %d on ) holds accounts and waits for ledger",
			"report (pid %d on ) holds ledger and waits for accounts"} {
			p := backup
			if strings.HasPrefix(line, "report") {
				p = report
			}
			lines = append(lines, "  "+fmt.Sprintf(line, p.cmd.Process.Pid))
		}
		if backup.cmd.Process.Pid > report.cmd.Process.Pid {
			lines[1], lines[2] = lines[2], lines[1]
		}
		plain := regexp.MustCompile(` on [^ ]+\)`).ReplaceAllString(out, " on )")
		if plain != strings.Join(lines, "\n")+"\n" || stderr != "" {
			t.Errorf("stdout %s\nstderr %s\nwant %q", out, stderr, lines)
		}
		s.isJSON(backup.cmd.Process.Pid, report.cmd.Process.Pid)
		if out, _ := s.ask(0, "deadlocks", "--after=0s", "acc"); out != "" {
			t.Errorf("with a prefix that leaves out the other lock: %s", out)
		}

		leave(backup)
		audit.expect("has accounts")
		nothing("one has gone")
		leave(audit, report)
	})
}

// isJSON checks what programs read of a deadlock over accounts and ledger.
func (s *site) isJSON(pids ...int) {
	s.t.Helper()
	out, _ := s.ask(1, "deadlocks", "--json", "--after=0s")
	type claim struct{ Name, Key, Kind, Owner, Label string }
	var found struct {
		Deadlock []struct {
			Host         string
			PID          int
			Holds, Waits claim
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Deadlock) != 2 {
		s.t.Fatalf("%v: %s", err, out)
	}
	sum := 0
	for i, step := range found.Deadlock {
		next := found.Deadlock[1-i]
		sum += step.PID
		if step.Waits.Key != next.Holds.Key || step.Holds.Key != s.prefix+step.Holds.Name ||
			step.Holds.Kind != "lock" || step.Holds.Owner == "" || step.Waits.Owner == "" ||
			step.Waits.Owner == step.Holds.Owner || step.Holds.Label != step.Waits.Label {
			s.t.Errorf("%+v before %+v", step, next)
		}
	}
	if sum != pids[0]+pids[1] {
		s.t.Errorf("of other processes: %s", out)
	}
}

// TestDeadlocksOfPermits: two processes that have both permits and wait for a lock and a permit are
// stuck. If a permit is with somebody who works, nobody is.
func TestDeadlocksOfPermits(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		a, b, c := s.taker("a"), s.taker("b"), s.taker("c")
		a.take("+jobs")
		b.take("+jobs")
		c.take("ledger")
		c.want("+jobs")
		a.want("ledger")
		s.says(0, []string{"inspect", "ledger"}, "  waiting  1")
		s.says(0, []string{"inspect", "jobs"}, `(?s)jobs, permit 0.*waiting  1.*jobs, permit 1`+
			`.*waiting  1`)
		if out, _ := s.ask(0, "deadlocks", "--after=0s"); out != "" {
			t.Errorf("b works: %s", out)
		}
		b.want("ledger")
		s.says(0, []string{"inspect", "ledger"}, "  waiting  2")
		s.says(1, []string{"deadlocks", "--after=0s"}, "possible deadlock of 2 processes:",
			`  [ab] \(.*\) holds jobs, permit [01] and waits for ledger`,
			`  c \(.*\) holds ledger and waits for jobs, permit [01]`)
		leave(a, b, c)
	})
}

// TestDeadlocksOfCommands: a process waits for its command. So two scripts that run under one lock
// and ask for the other's are stuck, and so is one that asks for its own.
func TestDeadlocksOfCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	script := func(outer, inner string) *process {
		p := s.command(s.url, "run", longTTL, "--label=outer", outer, "--", "sh", "-c",
			`echo ready; read x; "$0" run --ttl=1h --label=inner "$1" -- true; :`, holdfastPath, inner)
		p.expect("ready")
		return p
	}
	one, two, self := script("a", "b"), script("b", "a"), script("c", "c")
	for _, p := range []*process{one, two, self} {
		p.want("go")
	}
	for _, name := range []string{"a", "b", "c"} {
		s.says(0, []string{"inspect", name}, "  waiting  1")
	}
	outer := func(p *process, holds string) string {
		return fmt.Sprintf(`  outer \(pid %d on .*\) holds %s and runs pid \d+`, p.cmd.Process.Pid,
			holds)
	}
	s.says(1, []string{"deadlocks", "--after=0s"}, "possible deadlock of 4 processes:",
		"possible deadlock of 2 processes:", outer(one, "a"), outer(two, "b"), outer(self, "c"),
		`  inner \(pid \d+ on .*\) waits for a`, `  inner \(pid \d+ on .*\) waits for b`,
		`  inner \(pid \d+ on .*\) waits for c`)
}
