package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// site is a backend with locks, and the address of a user who may only look.
type site struct {
	t       *testing.T
	name    string
	url     string
	looks   string              // of the operator, who has no right to write where there are rights
	prefix  string              // of keys
	servers []*redistest.Server // none for a directory
	held    []*process
}

// sites calls f with a directory, a Redis, and three servers with one lock.
func sites(t *testing.T, f func(t *testing.T, s *site)) {
	t.Parallel()
	for _, name := range []string{"directory", "redis", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newSite(t, name))
		})
	}
}

func newSite(t *testing.T, name string) *site {
	t.Helper()
	s := &site{t: t, name: name, prefix: "lock:"}
	switch name {
	case "directory":
		s.url = "file://" + locks(t)
		s.looks, s.prefix = s.url, ""
		return s
	case "redis":
		s.servers = []*redistest.Server{redistest.Start(t)}
	default:
		s.servers = []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	}
	var hosts []string
	for _, server := range s.servers {
		server.Do(t, "ACL", "SETUSER", "looks", "on", ">hunter2", "~*", "resetchannels", "+@read")
		hosts = append(hosts, server.Addr)
	}
	at := strings.Join(hosts, ",")
	if name == "redlock" {
		at += "?restart-guard=0s&" + patient
	}
	s.url, s.looks = name+"://"+at, name+"://looks:hunter2@"+at
	return s
}

// patient is longer than any pause of a busy machine, and shorter than the leases of the tests.
const patient = "node-timeout=8s"

// impatient makes a set of servers wait less long for one of them that hangs.
func (s *site) impatient() {
	s.url = strings.Replace(s.url, patient, "node-timeout=2s", 1)
	s.looks = strings.Replace(s.looks, patient, "node-timeout=2s", 1)
}

// command starts holdfast.
func (s *site) command(url string, args ...string) *process {
	s.t.Helper()
	cmd := exec.Command(holdfastPath, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
	return startCommand(s.t, cmd)
}

// hold holds a lock or a permit until release or the end of the test.
func (s *site) hold(args ...string) *process {
	s.t.Helper()
	p := s.command(s.url, append([]string{"hold", longTTL}, args...)...)
	p.line()
	s.held = append(s.held, p)
	return p
}

// grantedByAll waits until each server has granted a lock: its holder goes on as soon as most have.
func (s *site) grantedByAll(name string) {
	s.t.Helper()
	for _, server := range s.servers {
		testserver.Eventually(s.t, server.Addr+" has granted it, too", func() error {
			return testserver.Not(server.Int(s.t, "EXISTS", s.prefix+name) == 1, "not yet")
		})
	}
}

// wait waits for a lock that is held.
func (s *site) wait(args ...string) *process {
	s.t.Helper()
	p := s.command(s.url, append([]string{"hold", longTTL}, args...)...)
	p.expectStderr("waiting for")
	s.held = append(s.held, p)
	return p
}

// release ends all holders and waiters, the last first.
func (s *site) release() {
	s.t.Helper()
	for _, p := range slices.Backward(slices.Clone(s.held)) {
		s.end(p)
	}
}

// end ends a holder or waiter. One whose lock was freed may have ended by itself.
func (s *site) end(p *process) {
	s.t.Helper()
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	p.ends()
	s.held = slices.DeleteFunc(s.held, func(q *process) bool { return q == p })
}

// ask runs a command that looks, and returns what it prints. It must end with the exit code, and
// never shows the password.
func (s *site) ask(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	p := s.command(s.looks, args...)
	p.expectExit(code)
	stdout = strings.Join(append(p.rest(), ""), "\n")
	stderr = p.allStderr()
	if strings.Contains(stdout+stderr, "hunter2") {
		s.t.Errorf("%v: shows the password: %s%s", args, stdout, stderr)
	}
	return stdout, stderr
}

// says asks until the output matches each pattern: a waiter shows only after a moment.
func (s *site) says(code int, args []string, patterns ...string) (stdout string) {
	s.t.Helper()
	testserver.Eventually(s.t, fmt.Sprintf("%v says %q", args, patterns), func() error {
		stdout, _ = s.ask(code, args...)
		for _, pattern := range patterns {
			if !regexp.MustCompile("(?m)^" + pattern + "$").MatchString(stdout) {
				return fmt.Errorf("%s has no line %s", stdout, pattern)
			}
		}
		return nil
	})
	return stdout
}

// since returns what a list shows as the time since when a lock is held. Only a directory keeps
// that.
func (s *site) since() string {
	if s.name == "directory" {
		return `[0-9.hm]+s`
	}
	return "-"
}

// TestLs: an operator, who has no right to write, sees who holds what, and how many wait.
func TestLs(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		if out, err := s.ask(0, "ls"); out != "" || !strings.Contains(err, "no lock is held") {
			t.Errorf("of nothing: %q, %q", out, err)
		}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		backup := s.hold("--label", "backup", "nightly")
		s.wait("nightly")
		s.wait("nightly")
		a := s.hold("--shared", "catalogue")
		s.hold("--shared", "catalogue")
		s.hold("--permits=2", "jobs")
		row := func(cells ...string) string { return strings.Join(cells, ` +`) }
		since, lease := s.since(), `(1h0m0s|5\dm\d+s)`
		out := s.says(0, []string{"ls"},
			row("NAME", "HOLDER", "HOST", "PID", "FOR", "LEASE", "WAITING"),
			row("catalogue", "2 share it", "-", "-", "-", lease, "0"),
			row("jobs, permit [01]", "-", regexp.QuoteMeta(host), `\d+`, since, lease, "0"),
			row("nightly", "backup", regexp.QuoteMeta(host), fmt.Sprint(backup.cmd.Process.Pid),
				since, lease, "2"))
		if strings.Count(out, "\n") != 4 ||
			!slices.IsSorted(strings.Split(strings.TrimSpace(out), "\n")[1:]) {
			t.Errorf("not four lines in order:\n%s", out)
		}
		out, _ = s.ask(0, "ls", "cat")
		if strings.Count(out, "\n") != 2 || !strings.Contains(out, "catalogue") {
			t.Errorf("of a prefix:\n%s", out)
		}
		s.end(a)
		s.says(0, []string{"ls", "c"}, row("catalogue", `- \(shares\)`, regexp.QuoteMeta(host),
			`\d+`, since, lease, "0"))
	})
}

// TestLsOnANarrowTerminal: columns are left out if the others fit then. Which of them besides the
// process depends on how long this host's name is.
func TestLsOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	defer s.release()
	s.hold("--label=backup", "nightly")
	for width, want := range map[uint16]string{
		120: "HOST +PID +FOR +LEASE",
		44:  "(HOST +)?(FOR +)?LEASE",
		20:  "HOST +PID +FOR +LEASE",
	} {
		cmd := exec.Command(holdfastPath, "ls")
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.looks, "NO_COLOR=1")
		p, _ := startOnTerminal(t, width, cmd)
		p.expectExit(0)
		p.expectStderr(`^NAME +HOLDER +` + want + ` +WAITING\r\nnightly +backup +.* 0\r\n`)
	}
}

// key is what a program reads of a line of JSON.
type key struct {
	Name, Key, Kind string
	Slot            *int
	Shared          bool
	Waiting         int
	Leaks           []string
	Holders         []party
	Waiters         []party
	Nodes           []struct {
		Node, Error string
		Holders     []party
	}
}

type party struct {
	Owner, Label, Host, Process string
	PID, Count                  int
	Foreign, Endless            bool
	Cut                         bool `json:"owner_cut"`
	Token                       uint64
	LeaseMS                     int64 `json:"lease_ms"`
}

// keys reads lines of JSON.
func keys(t *testing.T, text string) (all []key) {
	t.Helper()
	for line := range strings.Lines(text) {
		var k key
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, k)
	}
	return all
}

// TestLsJSON: programs read the same from lines of JSON.
func TestLsJSON(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		p := s.hold("--label", "backup", "nightly")
		s.hold("--permits=1", "jobs")
		out, err := s.ask(0, "ls", "--json")
		all := keys(t, out)
		if len(all) != 2 || err != "" {
			t.Fatalf("stdout %s, stderr %s", out, err)
		}
		jobs, nightly := all[0], all[1]
		if jobs.Kind != "permit" || jobs.Name != "jobs" || jobs.Slot == nil || *jobs.Slot != 0 ||
			jobs.Key != s.prefix+"jobs@permit/0" {
			t.Errorf("the permit is %+v", jobs)
		}
		if nightly.Key != s.prefix+"nightly" || nightly.Kind != "lock" || nightly.Slot != nil ||
			len(nightly.Holders) != 1 {
			t.Fatalf("the lock is %+v", nightly)
		}
		if h := nightly.Holders[0]; h.Label != "backup" || h.PID != p.cmd.Process.Pid ||
			h.Process != "lives" || h.LeaseMS <= 0 || h.Foreign ||
			(h.Token != 0) != (s.name == "directory") {
			t.Errorf("the holder is %+v", h)
		}
	})
}

// TestLsOfOthers: what other programs wrote is shown without what a terminal obeys, and cut.
func TestLsOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	const id = "AAAAAAAAAAAAAAAAAAAAAAAA"
	redis := s.servers[0]
	redis.Do(t, "SET", "lock:\x1b[2J", id+"/h\x1b]0;x\x07/7/l\x1b[31m", "PX", "3600000")
	redis.Do(t, "SET", "lock:theirs", strings.Repeat("0123456789", 9), "PX", "3600000")
	redis.Do(t, "SET", "lock:\xff", "redis://u:hunter2@h", "PX", "3600000")
	redis.Do(t, "SET", "other:x", "not a lock")
	out, _ := s.ask(0, "ls")
	for _, want := range []string{`"\x1b[2J"`, `"l\x1b[31m"`, `"h\x1b]0;x\a"`,
		`"0123456789012345678901234567890123456789"... `, `"redis://...@h"`, `"\xff"`} {
		if !strings.Contains(out, want) {
			t.Errorf("does not show %s:\n%s", want, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\x07") || !utf8.ValidString(out) ||
		strings.Contains(out, "other:x") {
		t.Errorf("shows %q", out)
	}
	redis.Do(t, "DEL", "lock:\xff") // a program gets foreign values as they are
	out, _ = s.ask(0, "ls", "--json")
	if all := keys(t, out); len(all) != 2 || all[0].Name != "\x1b[2J" ||
		all[1].Holders[0].Owner != strings.Repeat("0123456789", 9) || !all[1].Holders[0].Foreign {
		t.Errorf("shows %s", out)
	}
	if strings.ContainsAny(out, "\x1b\x07") {
		t.Errorf("shows %q", out)
	}
}

// TestLsChangesNothing: a server has the same data and the same scripts as before, though its user
// might do more, and a directory that is not there is not made.
func TestLsChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redlock")
	s.looks = s.url
	defer s.release()
	s.hold("nightly")
	s.grantedByAll("nightly") // else what the holder sends would count
	for _, server := range s.servers {
		server.Do(t, "SCRIPT", "FLUSH")
		server.Do(t, "CONFIG", "RESETSTAT")
	}
	s.ask(0, "ls")
	for _, server := range s.servers {
		stats := server.Do(t, "INFO", "commandstats").(string)
		if found := regexp.MustCompile(`cmdstat_(script|set|hset|zadd|publish|subscribe)\b.*`).
			FindString(stats); found != "" {
			t.Errorf("%s was sent", found)
		}
	}
	missing := t.TempDir() + "/missing"
	s.looks = "file://" + missing
	if _, err := s.ask(69, "ls"); !strings.Contains(err, "no such file or directory") {
		t.Errorf("of a directory that is missing: %s", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the directory was made")
	}
}

// TestLsOfASilentServer: a server that hangs is an error in time, and so is a set without a
// majority. A minority that hangs does not matter.
func TestLsOfASilentServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redlock")
	s.hold("nightly")
	s.grantedByAll("nightly") // else it may be on one of those that answer alone
	s.impatient()
	s.servers[2].Freeze()
	if out, _ := s.ask(0, "ls"); !strings.Contains(out, "nightly") {
		t.Errorf("with two of three servers: %s", out)
	}
	s.servers[1].Freeze()
	if _, err := s.ask(69, "ls", "--timeout=500ms"); !strings.Contains(err,
		"no answer within 500ms") {
		t.Errorf("with one of three servers: %s", err)
	}
	if out, _ := s.ask(2, "doctor", "--timeout=3s"); strings.Count(out,
		"gave no answer. [node-failed]") != 2 {
		t.Errorf("doctor with one of three servers: %s", out)
	}
	p := s.command("redis://"+s.servers[2].Addr, "release", "--yes", "--owner=x",
		"--timeout=500ms", "nightly")
	p.expectExit(69)
	if said := p.allStderr(); !strings.Contains(said, "nothing was freed") ||
		!strings.Contains(said, "no answer within 500ms") {
		t.Errorf("release of a server that hangs: %s", said)
	}
	s.looks = "redis://looks:hunter2@" + s.servers[2].Addr
	for _, command := range []string{"ls", "inspect k", "leaks", "deadlocks", "doctor"} {
		_, err := s.ask(69, append(strings.Fields(command), "--timeout=500ms")...)
		if !strings.Contains(err, "no answer within 500ms") || !strings.Contains(err,
			"accepted the connection and not answered yet: it may be stopped or overloaded") {
			t.Errorf("%s of a server that hangs: %s", command, err)
		}
	}
	for _, server := range s.servers {
		server.Thaw()
	}
}

// TestFormatOfLs: --format prints a line for each lock; a template that cannot work is a usage
// error, before any request.
func TestFormatOfLs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	defer s.release()
	s.hold("--label=the backup", "nightly")
	s.hold("report")
	out, err := s.ask(0, "ls", "--format={{.name}}:{{.waiting}}:{{.holder.label}}")
	if want := "nightly:0:\"the backup\"\nreport:0:\n"; out != want || err != "" {
		t.Errorf("prints %q, %q; want %q", out, err, want)
	}
	if out, err := s.ask(0, "ls", "--format={{.name}}", "x"); out+err != "" {
		t.Errorf("of nothing: %q, %q", out, err)
	}
	for _, flags := range [][]string{{"--format={{.nmae}}"}, {"--format={{"},
		{"--format={{.name}}", "--json"}} {
		if out, err := s.ask(64, append([]string{"ls"}, flags...)...); out != "" || err == "" {
			t.Errorf("%q: %q, %q", flags, out, err)
		}
	}
}
