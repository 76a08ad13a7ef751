package main_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLeaks: an operator without the right to write, and cron, are told of locks whose process is
// gone and of keys without an end, and of nothing else.
func TestLeaks(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("nightly")
		s.hold("--shared", "catalogue")
		s.hold("--permits=2", "jobs")
		for _, flags := range [][]string{{"leaks"}, {"leaks", "--json"}} {
			if out, err := s.ask(0, flags...); out+err != "" {
				t.Errorf("of nothing: %q, %q", out, err)
			}
		}
		dead := s.command(s.url, "hold", longTTL, "--label=dead", "left")
		dead.line()
		if err := dead.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-dead.ended
		if s.name == "directory" {
			if out, err := s.ask(0, "leaks"); out+err != "" {
				t.Errorf("a lock that ended with its process: %q, %q", out, err)
			}
			s.ask(0, "ls") // the next one that opens the directory cleans up after that process
			return
		}
		s.grantedByAll("nightly") // a grant that comes later has an expiry
		for _, server := range s.servers {
			server.Do(t, "SET", "lock:theirs", "\x1b5f3a")
			server.Do(t, "PERSIST", "lock:nightly")
		}
		out, err := s.ask(1, "leaks")
		lines := strings.Split(out, "\n")
		wants := []string{
			fmt.Sprintf("left: process-gone: held by dead (pid %d on ", dead.cmd.Process.Pid),
			"nightly: no-expiry: held by pid ",
			`theirs: no-expiry: held by "\x1b5f3a" of another library without an expiry`,
		}
		if len(lines) != 4 || err != "" {
			t.Fatalf("stdout %q, stderr %q; want three lines", out, err)
		}
		for i, want := range wants {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("line %d is %q; want %q", i, lines[i], want)
			}
		}
		out, _ = s.ask(1, "leaks", "--json", "l")
		if all := keys(t, out); len(all) != 1 || all[0].Name != "left" || len(all[0].Leaks) != 1 ||
			all[0].Leaks[0] != "process-gone" {
			t.Errorf("as JSON, with a prefix: %s", out)
		}
		s.free(0, "left", "--owner", s.only("left").Owner)
		if out, _ := s.ask(0, "leaks", "l"); out != "" {
			t.Errorf("after the release: %s", out)
		}
	})
}

// TestLeaksHeldLong: a lock that is held for longer than the operator calls usual is found. On a
// backend that does not keep since when, a file keeps it. A waiter whose process is gone is found,
// too.
func TestLeaksHeldLong(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--label=stuck", "nightly")
		memory := filepath.Join(t.TempDir(), "seen")
		long := []string{"leaks", "--longer-than=1ms", "--remember=" + memory, "nightly"}
		if s.name == "directory" {
			long = slices.Delete(long, 2, 3)
		} else {
			if out, err := s.ask(0, long[0], long[1]); out != "" ||
				!strings.Contains(err, "does not know since when 1 are held: use --remember") {
				t.Errorf("without --remember: %q, %q", out, err)
			}
			if out, err := s.ask(0, long...); out+err != "" {
				t.Errorf("at first: %q, %q", out, err)
			}
		}
		out, err := s.ask(1, long...)
		if !strings.HasPrefix(out, "nightly: held-long: held by stuck (pid ") || err != "" {
			t.Errorf("then: %q, %q", out, err)
		}
		out, _ = s.ask(1, append(long, "--json")...)
		if all := keys(t, out); len(all) != 1 || len(all[0].Leaks) != 1 ||
			all[0].Leaks[0] != "held-long" {
			t.Errorf("as JSON: %s", out)
		}
		if out, err := s.ask(0, "leaks", "--longer-than=10000h"); out != "" {
			t.Errorf("of a longer time: %q, %q", out, err)
		}
		if s.name == "directory" {
			return // a waiter is gone with its process
		}
		dead := s.wait("--label=dead", "nightly")
		if err := dead.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-dead.ended
		out, _ = s.ask(1, "leaks", "nightly")
		if !strings.HasPrefix(out, "nightly: waiter-gone: waited for by dead (pid ") {
			t.Errorf("of a dead waiter: %q", out)
		}
	})
}
