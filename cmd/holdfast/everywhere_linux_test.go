package main_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// looksTheSame has every command that looks show a lock with a holder and a waiter and two
// processes that wait for each other, and release free a lock by its token, on a server that has
// neither. doctor is the exit code of that command. What these commands show on a directory and on
// Redis, tests of their own say.
func looksTheSame(t *testing.T, url string, doctor int) {
	t.Helper()
	const ttl = "--ttl=5m"
	s := &site{t: t, name: "server", url: url, looks: url}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	backup := s.hold(ttl, "--label=backup", "nightly/1")
	next := s.wait(ttl, "--label=next", "nightly/1")
	who := func(label string, p *process) string {
		return regexp.QuoteMeta(fmt.Sprintf("%s (pid %d on %s)", label, p.cmd.Process.Pid, host))
	}
	s.says(0, []string{"ls", "nightly/"}, strings.Join([]string{"nightly/1", "backup",
		regexp.QuoteMeta(host), fmt.Sprint(backup.cmd.Process.Pid), `[0-9.hm]+s`,
		`(-|5m0s|4m\d+s)`, "1"}, " +"))
	s.says(0, []string{"inspect", "nightly/1"}, "  held by  "+who("backup", backup),
		"  waiting  1", `    1\.  `+who("next", next)+", .*")
	if out, _ := s.ask(0, "leaks", "nightly/"); out != "" {
		t.Errorf("leaks finds %s", out)
	}
	if out, _ := s.ask(0, "leaks", "nightly/", "--longer-than=1h"); out != "" {
		t.Errorf("leaks finds %s", out)
	}
	s.says(doctor, []string{"doctor"}, "[a-z]+: .*|nothing found")

	all := keys(t, first(s.ask(0, "ls", "--json", "nightly/")))
	if len(all) != 1 || len(all[0].Holders) != 1 || all[0].Holders[0].Token == 0 {
		t.Fatalf("ls --json has %+v; want a holder with a token", all)
	}
	token := all[0].Holders[0].Token
	s.ask(70, "release", "--yes", "nightly/1", "--token", fmt.Sprint(token+1))
	s.ask(0, "release", "--yes", "nightly/1", "--token", fmt.Sprint(token))
	next.line()
	s.ask(70, "release", "--yes", "nightly/1", "--token", fmt.Sprint(token))

	crossed := func(has, wants string) *process {
		return s.command(url, "run", ttl, "--label="+has, has, "--", "sh", "-c",
			"echo started; read x; exec '"+holdfastPath+"' run "+ttl+" --label="+has+" "+wants+
				" -- true")
	}
	one, two := crossed("one/1", "one/2"), crossed("one/2", "one/1")
	for _, p := range []*process{one, two} {
		p.expect("started")
		s.held = append(s.held, p)
	}
	if out, _ := s.ask(0, "deadlocks", "--after=0s"); out != "" {
		t.Errorf("nobody waits: %s", out)
	}
	for _, p := range []*process{one, two} {
		p.want("")
		p.expectStderr("waiting for")
	}
	for _, name := range []string{"one/1", "one/2"} {
		s.says(0, []string{"inspect", name}, "  waiting  1")
	}
	s.says(1, []string{"deadlocks", "--after=0s"}, "possible deadlock of 4 processes:",
		`  one/1 \(.*\) holds one/1 and runs pid \d+`, `  one/2 \(.*\) holds one/2 and runs pid \d+`,
		`  one/1 \(.*\) waits for one/2`, `  one/2 \(.*\) waits for one/1`)
	s.release()
}

// mayOnlyLook has a user who may only look see a lock with its holder and its waiter by every
// command that looks, and free nothing. looks is the address with that user, doctor the exit code
// of that command. For Redis, each command has a test of its own for this.
func mayOnlyLook(t *testing.T, url, looks string, doctor int) {
	t.Helper()
	s := &site{t: t, name: "server", url: url, looks: looks}
	const ttl = "--ttl=5m"
	s.hold(ttl, "--label=backup", "rights/1")
	s.wait(ttl, "--label=next", "rights/1")
	s.says(0, []string{"ls", "rights/"}, "rights/1 +backup .* 1")
	s.says(0, []string{"inspect", "rights/1"}, "  held by  backup .*", `    1\.  next .*`)
	for _, command := range [][]string{{"leaks", "rights/"}, {"deadlocks", "--after=0s"}} {
		if out, _ := s.ask(0, command...); out != "" {
			t.Errorf("%v finds %s", command, out)
		}
	}
	s.says(doctor, []string{"doctor"}, ".*rights.*")
	all := keys(t, first(s.ask(0, "ls", "--json", "rights/")))
	if len(all) != 1 || len(all[0].Holders) != 1 {
		t.Fatalf("ls --json has %+v; want a holder", all)
	}
	_, text := s.ask(69, "release", "--yes", "rights/1", "--token",
		fmt.Sprint(all[0].Holders[0].Token))
	if !strings.Contains(text, "rights") && !strings.Contains(text, "permission denied") {
		t.Errorf("release says %q; want that the rights are missing", text)
	}
	s.says(0, []string{"ls", "rights/"}, "rights/1 +backup .* 1")
	s.release()
}
