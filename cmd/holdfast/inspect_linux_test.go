package main_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInspect: an operator sees who holds a lock, whether that lives, and each waiter in its place.
func TestInspect(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		if out, _ := s.ask(0, "inspect", "nightly"); !strings.Contains(out, "held by  nobody") ||
			!strings.Contains(out, "waiting  0") {
			t.Errorf("of nothing:\n%s", out)
		}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		who := func(label string, p *process) string {
			return regexp.QuoteMeta(fmt.Sprintf("%s (pid %d on %s)", label, p.cmd.Process.Pid,
				host))
		}
		backup := s.hold("--label", "backup", "nightly")
		first := s.wait("--label", "first", "nightly")
		second := s.wait("--label", "second", "nightly")
		present := `, its process on this host lives, counts as present for \d+(\.\d)?s more`
		lines := []string{"nightly",
			"  key      " + s.prefix + "nightly",
			"  held by  " + who("backup", backup),
			"  alive    its process on this host lives",
			`  lease    (1h0m0s|5\dm\d+s), unless renewed before`,
			`  owner    [-_A-Za-z0-9]{24}/` + regexp.QuoteMeta(host) + `/\d+/backup`,
			"  waiting  2",
			"    1\\.  " + who("first", first) + present,
			"    2\\.  " + who("second", second) + present,
		}
		if s.name == "directory" {
			lines = append(lines, `  since    20\d\d-\d\d-\d\d \d\d:\d\d:\d\d, [0-9.hm]+s ago`,
				`  token    \d{16}`)
		}
		if s.name == "redlock" {
			for i, server := range s.servers {
				head := "         "
				if i == 0 {
					head = "  nodes  "
				}
				lines = append(lines, head+"  "+server.Addr+": granted it to "+
					who("backup", backup)+`, lease (1h0m0s|5\dm\d+s); 2 waiting`)
			}
		}
		s.says(0, []string{"inspect", "nightly"}, lines...)

		out, _ := s.ask(0, "inspect", "--json", "nightly")
		all := keys(t, out)
		if len(all) != 1 || len(all[0].Holders) != 1 || all[0].Holders[0].Label != "backup" ||
			len(all[0].Nodes) != len(s.servers)*btoi(s.name == "redlock") ||
			all[0].Waiting != len(all[0].Waiters) {
			t.Errorf("as JSON: %s", out)
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestInspectShared: all who share a lock are shown.
func TestInspectShared(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--shared", "--label", "a", "catalogue")
		s.hold("--shared", "--label", "b", "catalogue")
		s.says(0, []string{"inspect", "catalogue"}, "  shared   by 2, each with a lease of its own",
			`  held by  a \(pid .*`, `  held by  b \(pid .*`)
	})
}

// TestInspectSemaphore: what the library stores for a semaphore is shown as what it is.
func TestInspectSemaphore(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--permits=2", "--label", "a", "jobs")
		s.hold("--permits=2", "--label", "b", "jobs")
		s.wait("--permits=2", "--label", "c", "jobs")
		out := s.says(0, []string{"inspect", "jobs"}, "jobs, gate of 2", "jobs, scouts",
			"jobs, permit 0",
			"jobs, permit 1", "  is a permit: one slot of the semaphore jobs, .*",
			"  is a gate of the semaphore jobs: .*", `  held by  permits=2 \(pid .*`)
		if regexp.MustCompile(`(?m)^jobs$`).MatchString(out) {
			t.Errorf("shows the lock of that name, which nobody holds:\n%s", out)
		}
		s.hold("jobs") // which is another thing
		s.says(0, []string{"inspect", "jobs"}, "jobs", "jobs, gate of 2", "jobs, scouts",
			"jobs, permit 0",
			"jobs, permit 1")
		s.says(0, []string{"inspect", "jobs@permit/1"}, "jobs, permit 1")
	})
}

// TestInspectNodes: over a set of servers the operator sees which one is behind, which one another
// claim holds, and which one does not answer, also where no majority answers.
func TestInspectNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redlock")
	s.hold("--label", "backup", "nightly")
	s.grantedByAll("nightly")
	s.servers[0].Do(t, "DEL", "lock:nightly")
	s.says(0, []string{"inspect", "nightly"}, `  held by  backup \(pid .*`,
		"  nodes    "+s.servers[0].Addr+": is behind: knows no holder",
		"           "+s.servers[1].Addr+": granted it to backup .*")
	s.servers[0].Do(t, "SET", "lock:nightly", "5f3a")
	s.says(0, []string{"inspect", "nightly"}, `  held by  backup \(pid .*`,
		"  nodes    "+s.servers[0].Addr+": differs: granted it to "+
			`"5f3a" of another library, lease no end`)
	s.impatient()
	s.servers[1].Freeze()
	s.says(0, []string{"inspect", "nightly"},
		"           "+s.servers[1].Addr+": does not answer: .*")
	s.servers[2].Kill()
	out, err := s.ask(69, "inspect", "--timeout=14s", "nightly")
	if strings.Contains(out, "nobody") || !strings.Contains(out, "\n  held by  not known\n") {
		t.Errorf("without a majority nobody knows the holder:\n%s", out)
	}
	if !strings.Contains(err, s.servers[2].Addr) {
		t.Errorf("without a majority: %q", err)
	}
	refused := " +" + s.servers[2].Addr + ": does not answer: .*connection refused.*"
	if !strings.Contains(out, "differs") || !regexp.MustCompile(refused).MatchString(out) {
		// On a busy machine the one that is left may not answer in time either.
		s.says(69, []string{"inspect", "--timeout=14s", "nightly"}, "  nodes    .*: differs: .*",
			refused)
	}
	s.servers[1].Thaw()
}

// TestInspectOthers: another library's value is shown quoted and cut, and given to programs as it
// is. What this library did not write is not taken for a process.
func TestInspectOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	value := "\x1b[2J" + strings.Repeat("0123456789", 9)
	s.servers[0].Do(t, "SET", "lock:theirs", value)
	out := s.says(0, []string{"inspect", "theirs"},
		regexp.QuoteMeta(`  held by  "\x1b[2J012345678901234567890123456789012345"... of another library`),
		"  lease    has no end: it stays until it is removed",
		"  alive    whether that is alive is not known")
	if strings.Contains(out, "\x1b") {
		t.Errorf("shows %q", out)
	}
	out, _ = s.ask(0, "inspect", "--json", "theirs")
	if all := keys(t, out); len(all) != 1 || len(all[0].Holders) != 1 ||
		!slices.Equal(all[0].Holders, []party{{Owner: value, Foreign: true, Endless: true}}) {
		t.Errorf("as JSON: %s", out)
	}
	s.servers[0].Do(t, "HSET", "lock:hash", "f", "v")
	for _, flag := range []string{"--json", "--json=false"} {
		if out, err := s.ask(69, "inspect", flag, "hash"); !strings.Contains(err, "WRONGTYPE") ||
			out != "" {
			t.Errorf("of a key that is no lock: %s%s", out, err)
		}
	}
}

// TestInspectRedisson: a lock of Redisson, which is a hash, is shown with each holder and its
// count, over several servers too, and release leaves it alone.
func TestInspectRedisson(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, name)
			const one = "8743c9c0-0795-4907-87fd-6c719a6b4586:51"
			const two = "a743c9c0-0795-4907-87fd-6c719a6b4586:7"
			for _, server := range s.servers {
				server.Do(t, "HSET", "lock:theirs", one, "2")
				server.Do(t, "PEXPIRE", "lock:theirs", "3600000")
				server.Do(t, "HSET", "lock:readers", "mode", "read", one, "1", two, "3")
			}
			lease := `(1h0m0s|59m\d+s)`
			s.says(0, []string{"ls"}, `theirs +"`+one[:30]+`.* +- +- +- +`+lease+` +0`,
				`readers +2 share it +- +- +- +no end +0`)
			s.says(1, []string{"leaks"}, "readers: no-expiry: .*")
			s.says(0, []string{"inspect", "theirs"},
				`  held by  "`+one+`" of another library, 2 times`,
				`  lease    `+lease+`, unless renewed`)
			s.says(0, []string{"inspect", "readers"},
				"  shared   by 2, each with a lease of its own",
				`  held by  "`+one+`" of another library, once`,
				`  held by  "`+two+`" of another library, 3 times`)
			out, _ := s.ask(0, "inspect", "--json", "theirs")
			if all := keys(t, out); len(all) != 1 || len(all[0].Holders) != 1 ||
				all[0].Holders[0].Owner != one || all[0].Holders[0].Count != 2 ||
				!all[0].Holders[0].Foreign {
				t.Errorf("as JSON: %s", out)
			}
			said := s.free(64, "theirs", "--owner", one)
			if !strings.Contains(said, "a lock of Redisson is removed with the tools of the server; "+
				"nothing was freed") {
				t.Errorf("release says %s", said)
			}
			for _, lock := range []string{"theirs", "readers"} {
				said := s.free(64, lock, "--token", "17")
				if strings.Contains(said, "--owner") || !strings.Contains(said,
					"removed with the tools of the server; nothing was freed") {
					t.Errorf("release of %s by a token says %s", lock, said)
				}
			}
			s.says(0, []string{"inspect", "theirs"}, "  held by  .* 2 times")
		})
	}
}

// TestEmptyValueWithoutAnEnd: a key with nothing in it that never ends blocks its lock for ever,
// and the operator sees it as what it is, over several servers too.
func TestEmptyValueWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, name)
			for _, server := range s.servers {
				server.Do(t, "SET", "lock:theirs", "")
			}
			s.says(0, []string{"ls"}, `theirs +"" +- +- +- +no end +0`)
			s.says(0, []string{"inspect", "theirs"},
				"  held by  an empty value of another library",
				"  lease    has no end: it stays until it is removed")
			s.says(1, []string{"leaks"}, "theirs: no-expiry: held by an empty value of another "+
				"library without an expiry: it stays until it is removed")
			for _, command := range []string{"ls", "inspect"} {
				args := []string{command, "--json", "theirs"}
				if all := keys(t, first(s.ask(0, args...))); len(all) != 1 ||
					!slices.Equal(all[0].Holders, []party{{Foreign: true, Endless: true}}) {
					t.Errorf("%s as JSON: %+v", command, all)
				}
			}
			p := s.command(s.url, "run", "--no-wait", "theirs", "--", "true")
			p.expectExit(75)
		})
	}
}

func first(out, _ string) string { return out }

// TestLongValueIsNotFreed: of a long value only the beginning is shown, and marked as such. Naming
// the holder by that frees nothing, because another value may begin in the same way.
func TestLongValueIsNotFreed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	longest := strings.Repeat("x", 1024)
	s.servers[0].Do(t, "SET", "lock:theirs", longest+"y")
	s.says(0, []string{"inspect", "theirs"}, `  held by  "x{40}"\.\.\. of another library `+
		regexp.QuoteMeta("(its value is too long to name)"))
	out, _ := s.ask(0, "inspect", "--json", "theirs")
	if all := keys(t, out); len(all) != 1 || !slices.Equal(all[0].Holders,
		[]party{{Owner: longest, Cut: true, Foreign: true, Endless: true}}) {
		t.Errorf("as JSON: %s", out)
	}
	for _, owner := range []string{longest, longest + "y"} {
		if said := s.free(70, "theirs", "--owner="+owner); !strings.Contains(said,
			"its value is too long to name") {
			t.Errorf("says %s", said)
		}
	}
	if left := s.servers[0].Int(t, "STRLEN", "lock:theirs"); left != 1025 {
		t.Errorf("%d bytes are left", left)
	}
	s.servers[0].Do(t, "SET", "lock:theirs", longest)
	s.free(0, "theirs", "--owner="+longest)
	if left := s.servers[0].Int(t, "EXISTS", "lock:theirs"); left != 0 {
		t.Error("a value that is not too long is still held")
	}
}
