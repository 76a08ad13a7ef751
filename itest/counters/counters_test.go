package counters_test

import (
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/itest/counters"
)

// store is a Server with a client, and what it has reported.
type store struct {
	t        *testing.T
	register *counters.Server
	client   *rpc.Client
	reports  []string
}

func open(t *testing.T) *store {
	t.Helper()
	s := &store{t: t}
	dir := t.TempDir()
	var err error
	// It reports before it answers, so the test sees it.
	if s.register, err = counters.Open(filepath.Join(dir, "s"), filepath.Join(dir, "db"),
		func(key, text string) {
			s.reports = append(s.reports, key)
		}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.register.Close)
	if s.client, err = rpc.Dial("unix", filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	return s
}

func (s *store) do(args counters.Args) counters.Reply {
	s.t.Helper()
	var reply counters.Reply
	if err := s.client.Call("Counters.Do", args, &reply); err != nil {
		s.t.Fatal(err)
	}
	return reply
}

func (s *store) reported(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.reports, want) {
		s.t.Errorf("reported %q, want %q", s.reports, want)
	}
	if err := s.register.Compare(); err != nil {
		s.t.Error(err)
	}
}

func TestGuardKeepsSmallerTokensOut(t *testing.T) {
	s := open(t)
	first := s.do(counters.Args{Key: "k", Owner: "a", Token: 5, Enter: true})
	if written := s.do(counters.Args{Key: "k", Owner: "a", Token: 5, Read: first.Value,
		Loose: first.Loose}); !written.Accepted || written.Value != 1 {
		t.Errorf("a rightful write got %+v", written)
	}
	second := s.do(counters.Args{Key: "k", Owner: "b", Token: 6, Enter: true})
	if !second.Accepted || second.Value != 1 || second.Loose != 1 {
		t.Errorf("the next holder got %+v", second)
	}
	if late := s.do(counters.Args{Key: "k", Owner: "a", Token: 5, Read: 1,
		Loose: 1}); late.Accepted || late.Value != 1 {
		t.Errorf("a late write got %+v", late)
	}
	if other := s.do(counters.Args{Key: "other", Owner: "a", Token: 5,
		Enter: true}); !other.Accepted {
		t.Errorf("another key got %+v", other)
	}
	s.reported()
	if got, want := s.register.Counts(), (counters.Counts{Accepted: 4, Refused: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// A guard remembers the tokens of writers, and not those of readers.
func TestReaders(t *testing.T) {
	s := open(t)
	look := func(token uint64) counters.Reply {
		return s.do(counters.Args{Key: "k", Owner: "r", Token: token, Look: true})
	}
	if first := look(3); !first.Accepted || first.Value != 0 {
		t.Errorf("who reads first got %+v", first)
	}
	s.do(counters.Args{Key: "k", Owner: "a", Token: 5})
	if later := look(9); !later.Accepted || later.Value != 1 || later.Loose != 1 {
		t.Errorf("a reader got %+v", later)
	}
	if other := look(7); !other.Accepted {
		t.Errorf("a reader with a smaller token than another got %+v", other)
	}
	if late := look(4); late.Accepted {
		t.Errorf("a reader whom a writer has overtaken got %+v", late)
	}
	if again := s.do(counters.Args{Key: "k", Owner: "a", Token: 5, Read: 1,
		Loose: 1}); !again.Accepted {
		t.Errorf("who wrote before got %+v", again)
	}
	s.reported()
	look(5)
	s.reported("k")
}

// The store without a guard takes the late write, and the next one of the rightful holder undoes
// it.
func TestLostUpdateIsCounted(t *testing.T) {
	s := open(t)
	s.do(counters.Args{Key: "k", Owner: "b", Token: 6, Enter: true})
	s.do(counters.Args{Key: "k", Owner: "a", Token: 5})
	s.do(counters.Args{Key: "k", Owner: "b", Token: 6})
	if got, want := s.register.Counts(),
		(counters.Counts{Accepted: 2, Refused: 1, Lost: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	s.reported()
}

func TestWhatMustNotBeIsReported(t *testing.T) {
	s := open(t)
	s.do(counters.Args{Key: "k", Owner: "a", Token: 5, Enter: true})
	s.do(counters.Args{Key: "k", Owner: "b", Token: 5, Enter: true})
	s.reported("k")
	s.do(counters.Args{Key: "k", Owner: "b", Token: 5, Read: 7})
	s.reported("k", "k")
}

// Two servers in directories whose names a URL would cut short do not share a file.
func TestFileOfAnyName(t *testing.T) {
	for _, name := range []string{"a#1", "a#2", "a?x", "a%41", "a b"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "db")
		r, err := counters.Open(filepath.Join(t.TempDir(), "s"), file, func(string, string) {})
		if err != nil {
			t.Fatalf("Open(%q): %v", file, err)
		}
		t.Cleanup(r.Close)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the register is elsewhere: %v", err)
		}
	}
}
