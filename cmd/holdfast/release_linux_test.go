package main_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// only returns the one holder of a lock.
func (s *site) only(name string) party {
	s.t.Helper()
	out, _ := s.ask(0, "inspect", "--json", name)
	all := keys(s.t, out)
	if len(all) != 1 || len(all[0].Holders) != 1 {
		s.t.Fatalf("%q is not held by one: %s", name, out)
	}
	return all[0].Holders[0]
}

// free runs holdfast release without a terminal, and returns what it prints.
func (s *site) free(code int, name string, flags ...string) (stderr string) {
	s.t.Helper()
	p := s.command(s.url, append(append([]string{"release", "--yes"}, flags...), name)...)
	p.expectExit(code)
	if out := strings.Join(p.rest(), "\n"); out != "" {
		s.t.Errorf("stdout is %q", out)
	}
	return p.allStderr()
}

// TestRelease: a lock is freed while the named acquisition holds it. Its holder hears of the loss,
// and who waits has the lock.
func TestRelease(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		cmd := exec.Command(holdfastPath, "run", "--ttl=9s", "nightly", "--", selfPath)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.url, role.Variable+"=echo")
		holder := startCommand(t, cmd)
		holder.expect("ready")
		waiter := s.wait("--label", "next", "nightly")
		h := s.only("nightly")
		flags := []string{"--owner", h.Owner}
		if s.name == "directory" {
			flags = []string{"--token", fmt.Sprint(h.Token)}
		} else if said := s.free(64, "nightly", "--token=17"); !strings.Contains(said,
			"does not keep the token") || !strings.Contains(said, "--owner") {
			t.Errorf("by a token that is not known: %s", said)
		}
		said := s.free(0, "nightly", flags...)
		for _, want := range []string{`nightly is held by .* \(pid %d on .*`,
			"freeing it does not stop that holder: .* at its next renewal",
			`freed nightly, which .* \(pid %d on .*\) held; now it is held by next \(pid .*`} {
			want = strings.ReplaceAll(want, "%d", fmt.Sprint(h.PID))
			if !regexp.MustCompile("(?m)^holdfast: " + want).MatchString(said) {
				t.Errorf("says %q; want %s", said, want)
			}
		}
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		by := regexp.MustCompile(`(?m)^holdfast: it was freed by (\S+) \(pid (\d+) on (\S+)\)$`)
		if got := by.FindStringSubmatch(said); got == nil || got[1] != me.Username ||
			got[2] == fmt.Sprint(h.PID) || got[3] != h.Host {
			t.Errorf("says %q; want that it was freed by %s on %s", said, me.Username, h.Host)
		}
		waiter.line()
		holder.expectExit(70)
		if got := s.only("nightly"); got.Label != "next" {
			t.Errorf("held by %+v", got)
		}
		if said := s.free(70, "nightly", flags...); !strings.Contains(said, "nothing was freed") ||
			!strings.Contains(said, "it is held by next") {
			t.Errorf("once more: %s", said)
		}
	})
}

// TestReleaseOfNobodyElse: a waiter, a process that is not there and a holder with another token
// are not freed, and nothing is taken from the holder.
func TestReleaseOfNobodyElse(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--label", "backup", "nightly")
		waiter := s.wait("nightly")
		out := s.says(0, []string{"inspect", "nightly"}, "  waiting  1")
		if out == "" {
			t.Fatal("nothing is shown")
		}
		out, _ = s.ask(0, "inspect", "--json", "nightly")
		k := keys(t, out)[0]
		if len(k.Waiters) != 1 {
			t.Fatalf("no waiter: %s", out)
		}
		others := [][]string{{"--owner", "x"}, {"--owner", k.Waiters[0].Owner},
			{"--owner", k.Holders[0].Owner + "x"}}
		if s.name == "directory" {
			others = append(others, []string{"--token", fmt.Sprint(k.Holders[0].Token + 1)})
		}
		for _, flags := range others {
			if said := s.free(70, "nightly", flags...); !strings.Contains(said,
				"it is held by backup") {
				t.Errorf("%v: %s", flags, said)
			}
		}
		if said := s.free(70, "free", "--owner=x"); !strings.Contains(said, "nobody holds it") {
			t.Errorf("of a lock that is free: %s", said)
		}
		if got := s.only("nightly"); got.Owner != k.Holders[0].Owner {
			t.Errorf("held by %+v; want %+v", got, k.Holders[0])
		}
		s.says(0, []string{"inspect", "nightly"}, "  waiting  1")
		waiter.running()
	})
}

// TestReleaseOfWhatIsNoLock: a key of another type is named with its type, and is left alone. What
// has no value that --owner could name is not said to be freed by it.
func TestReleaseOfWhatIsNoLock(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, name)
			for _, server := range s.servers {
				server.Do(t, "RPUSH", "lock:list", "a")
				server.Do(t, "SADD", "lock:set", "a")
				server.Do(t, "HSET", "lock:hash", "a", "b")
				server.Do(t, "SET", "lock:empty", "")
				server.Do(t, "SET", "lock:long", strings.Repeat("x", 2000))
			}
			for _, kind := range []string{"list", "set", "hash"} {
				for _, flags := range [][]string{{"--owner", "a"}, {"--token", "7"}} {
					want := kind + ": nothing was freed: the key is a " + kind + ", and no lock"
					if said := s.free(64, kind, flags...); !strings.Contains(said, want) ||
						strings.Contains(said, "unavailable") {
						t.Errorf("release of a %s says %s; want %s", kind, said, want)
					}
				}
				if _, said := s.ask(69, "inspect", kind); !strings.Contains(said,
					"a "+kind+", and no lock") {
					t.Errorf("inspect of a %s says %s", kind, said)
				}
			}
			for _, lock := range []string{"empty", "long"} {
				if said := s.free(64, lock, "--token", "7"); strings.Contains(said, "--owner") ||
					!strings.Contains(said, "with the tools of the server; nothing was freed") {
					t.Errorf("release of %s says %s", lock, said)
				}
			}
		})
	}
}

// TestReleaseOfOne: of several who share a lock, and of the permits of a semaphore, one is freed.
func TestReleaseOfOne(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--shared", "--label", "a", "catalogue")
		s.hold("--shared", "--label", "b", "catalogue")
		out, _ := s.ask(0, "inspect", "--json", "catalogue")
		for _, h := range keys(t, out)[0].Holders {
			if h.Label == "a" {
				s.free(0, "catalogue", "--owner", h.Owner)
			}
		}
		if got := s.only("catalogue"); got.Label != "b" {
			t.Errorf("held by %+v", got)
		}
		s.hold("--permits=2", "jobs")
		s.hold("--permits=2", "jobs")
		s.free(0, "jobs@permit/1", "--owner", s.only("jobs@permit/1").Owner)
		out, _ = s.ask(0, "ls", "--json", "jobs")
		if all := keys(t, out); len(all) != 1 || *all[0].Slot != 0 {
			t.Errorf("held after the release of permit 1: %s", out)
		}
	})
}

// onTerminal starts holdfast release on a terminal, and waits for the question.
func (s *site) onTerminal(name, owner string) (p *process, terminal io.Writer) {
	s.t.Helper()
	cmd := exec.Command(holdfastPath, "release", name, "--owner", owner)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.url)
	p, terminal = startOnTerminal(s.t, 200, cmd)
	p.expectStderr(`at its next renewal.*\r\nholdfast: free it\? \[y/N\] $`)
	return p, terminal
}

// TestReleaseAsks: on a terminal nothing is freed before the answer, and nothing but yes frees. If
// the lock has changed hands since the question, yes frees nobody.
func TestReleaseAsks(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		first := s.hold("--label", "first", "nightly")
		owner := s.only("nightly").Owner
		for _, answer := range []string{"\n", "n\n", "yess\n", "\x04"} {
			p, terminal := s.onTerminal("nightly", owner)
			io.WriteString(terminal, answer)
			p.expectStderr("holdfast: nothing was freed\r\n")
			p.expectExit(1)
		}
		p, terminal := s.onTerminal("nightly", owner)
		second := s.wait("--label", "second", "nightly")
		s.end(first)
		second.line()
		io.WriteString(terminal, "y\n")
		p.expectStderr("it is held by second .*; nothing was freed\r\n")
		p.expectExit(70)
		if got := s.only("nightly"); got.Label != "second" {
			t.Errorf("held by %+v", got)
		}
		p, terminal = s.onTerminal("nightly", s.only("nightly").Owner)
		io.WriteString(terminal, "yes\n")
		p.expectStderr("freed nightly, which second .* held; now nobody holds it\r\n")
		p.expectExit(0)
		s.ask(0, "ls")
	})
}

// TestReleaseAfterTheQuestion: what happens to the key or to the servers while an operator thinks
// is said as it is.
func TestReleaseAfterTheQuestion(t *testing.T) {
	t.Parallel()
	const owner = "AAAAAAAAAAAAAAAAAAAAAAAA/h/7/l"
	for _, name := range []string{"redis", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, name)
			s.impatient()
			for _, test := range []struct {
				meanwhile func(*redistest.Server)
				says      string
				code      int
			}{
				{func(server *redistest.Server) { server.Do(t, "DEL", "lock:nightly") },
					"is not held by .*: nobody holds it; nothing was freed", 70},
				{func(server *redistest.Server) { server.Do(t, "SET", "lock:nightly", "theirs") },
					`is not held by .*: it is held by .*"theirs".*; nothing was freed`, 70},
				{func(server *redistest.Server) {
					server.Do(t, "DEL", "lock:nightly")
					server.Do(t, "HSET", "lock:nightly", "a", "b")
				}, "nightly: nothing was freed: the key is a hash, and no lock", 64},
				{(*redistest.Server).Kill, "(the lock may have been|nothing was) freed.*: ", 69},
			} {
				for _, server := range s.servers {
					server.Do(t, "DEL", "lock:nightly")
					server.Do(t, "SET", "lock:nightly", owner, "PX", "3600000")
				}
				p, terminal := s.onTerminal("nightly", owner)
				for _, server := range s.servers {
					test.meanwhile(server)
				}
				io.WriteString(terminal, "y\n")
				p.expectStderr(test.says)
				p.expectExit(test.code)
			}
		})
	}
}

// TestReleaseOfAnotherLibrary: what another library holds without an expiry can be freed, and a
// user without the right to is told so.
func TestReleaseOfAnotherLibrary(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	s.servers[0].Do(t, "SET", "lock:theirs", "5f3a")
	p := s.command(s.looks, "release", "--yes", "--owner=5f3a", "theirs")
	p.expectExit(69)
	if said := p.allStderr(); !strings.Contains(said, "NOPERM") ||
		strings.Contains(said, "hunter2") {
		t.Errorf("without the right to: %s", said)
	}
	if said := s.free(0, "theirs", "--owner=5f3a"); !strings.Contains(said, "may never notice") ||
		!strings.Contains(said, "its lease has no end, 0 wait") {
		t.Errorf("says %s", said)
	}
	if left := s.servers[0].Int(t, "EXISTS", "lock:theirs"); left != 0 {
		t.Error("it is still held")
	}
}

// TestReleaseWithoutAnAnswer: a server that hangs is an error in time, which says that nobody knows
// whether the lock was freed once that may be.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	s.hold("nightly")
	owner := s.only("nightly").Owner
	p, terminal := s.onTerminal("nightly", owner)
	s.servers[0].Freeze()
	io.WriteString(terminal, "y\n")
	p.expectStderr("the lock may have been freed or not")
	p.expectExit(69)
	s.servers[0].Thaw()
}
