package main_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// all returns the keys of a server.
func all(t *testing.T, server *redistest.Server) (keys []string) {
	t.Helper()
	for _, key := range server.Do(t, "KEYS", "*").([]any) {
		keys = append(keys, key.(string))
	}
	slices.Sort(keys)
	return keys
}

// TestBench: each thing is measured on every backend, and nothing is left of it.
func TestBench(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		s.looks = s.url
		out, stderr := s.ask(0, "bench", "--count=5", "--json")
		var whats []string
		for line := range strings.Lines(out) {
			var got struct {
				What     string
				Times    int
				P50, P99 float64
			}
			if err := json.Unmarshal([]byte(strings.NewReplacer("p50_us", "p50", "p99_us",
				"p99").Replace(line)), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got.Times != 5 || got.P50 <= 0 || got.P99 < got.P50 {
				t.Errorf("%+v", got)
			}
			whats = append(whats, got.What)
		}
		if !slices.Equal(whats, []string{"round trip", "pair", "handoff"}) || stderr != "" {
			t.Errorf("stdout %s\nstderr %s", out, stderr)
		}
		for _, server := range s.servers {
			if left := locksOf(all(t, server)); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		}
		out, _ = s.ask(0, "bench", "--time=1ms")
		if lines := strings.Split(out, "\n"); len(lines) != 5 ||
			strings.Join(strings.Fields(lines[0]), " ") != "WHAT P50 P99 MAX TIMES TRIPS" ||
			!strings.HasPrefix(lines[3], "handoff ") {
			t.Errorf("shows\n%s", out)
		}
	})
}

// locksOf returns the keys that have to do with locks of holdfast bench.
func locksOf(keys []string) (some []string) {
	for _, key := range keys {
		if strings.Contains(key, "holdfast-bench") {
			some = append(some, key)
		}
	}
	return some
}

// TestBenchInterrupted: a signal ends bench, which leaves nothing.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	p := s.command(s.url, "bench", "--count=1000000", "--time=1h")
	testserver.Eventually(t, "bench is at work", func() error {
		return present(locksOf(all(t, s.servers[0])))
	})
	p.signal(syscall.SIGTERM)
	p.expectExit(143)
	if left := locksOf(all(t, s.servers[0])); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestBenchOfASilentServer: a server that hangs is an error in time, from the beginning and in the
// middle.
func TestBenchOfASilentServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	// It also has that long to connect, on a busy machine. What it then asks has less.
	p := s.command(s.url, "bench", "--count=1000000", "--time=1h", "--timeout=4s")
	testserver.Eventually(t, "bench is at work", func() error {
		return present(locksOf(all(t, s.servers[0])))
	})
	s.servers[0].Freeze()
	p.expectStderr("no answer within")
	p.expectExit(69)
	s.looks = s.url
	if _, err := s.ask(69, "bench", "--timeout=500ms"); !strings.Contains(err,
		"no answer within 500ms") {
		t.Error(err)
	}
	s.servers[0].Thaw()
}

// present returns an error if there are no keys.
func present(keys []string) error {
	if len(keys) == 0 {
		return errors.New("no key of it is there")
	}
	return nil
}
