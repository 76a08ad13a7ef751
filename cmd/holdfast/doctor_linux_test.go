package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// finding is a line of doctor --json.
type finding struct{ Severity, Code, Node, Summary, Advice string }

// findings reads the output of doctor --json.
func findings(t *testing.T, out string) (all []finding) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var f finding
		if err := d.Decode(&f); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if f.Summary == "" || f.Advice == "" {
			t.Errorf("%+v says too little", f)
		}
		all = append(all, f)
	}
	return all
}

// operator gives a user of the servers the rights that the help of doctor names.
func operator(t *testing.T, servers ...*redistest.Server) (login string) {
	t.Helper()
	for _, server := range servers {
		server.Do(t, "ACL", "SETUSER", "op", "on", ">hunter2", "~*", "resetchannels", "+@read",
			"+info", "+time", "+config|get")
	}
	return "op:hunter2@"
}

// TestDoctor: each finding is shown with what to do, the worst first, and the exit code is that of
// the worst. The operator needs no right to write.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &site{t: t, looks: "redis://" + operator(t, server) + server.Addr}

	server.Do(t, "CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	out, _ := s.ask(0, "doctor")
	if strings.Contains(out, "failure:") || strings.Contains(out, "warning:") {
		t.Errorf("of a good server:\n%s", out)
	}

	server.Do(t, "CONFIG", "SET", "appendonly", "no")
	out, _ = s.ask(1, "doctor")
	if !strings.Contains(out, "warning: "+server.Addr+": Nothing is written to disk") ||
		!strings.Contains(out, "[persistence]\n  Set appendonly yes") {
		t.Errorf("of a server without persistence:\n%s", out)
	}

	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory",
		"100mb")
	if out, _ = s.ask(2, "doctor"); !strings.HasPrefix(out, "failure: ") ||
		!strings.Contains(out, "[eviction-policy]") || !strings.Contains(out, "[persistence]") {
		t.Errorf("of a server that evicts:\n%s", out)
	}
	out, _ = s.ask(2, "doctor", "--json")
	all := findings(t, out)
	if len(all) < 2 || all[0].Severity != "failure" || all[0].Code != "eviction-policy" ||
		all[0].Node != server.Addr {
		t.Errorf("as JSON: %+v", all)
	}
	if n := server.Int(t, "DBSIZE"); n != 0 {
		t.Errorf("doctor has written %d keys", n)
	}

	server.Do(t, "ACL", "SETUSER", "op", "-config|get")
	if out, _ = s.ask(2, "doctor"); !strings.Contains(out, "could not be read") {
		t.Errorf("without the right to read the configuration:\n%s", out)
	}
}

// TestDoctorOfRedlock: a server of a set that does not answer is a failure that names it.
func TestDoctorOfRedlock(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	login := operator(t, servers...)
	s := &site{t: t, looks: "redlock://" + login + servers[0].Addr + "," + servers[1].Addr + "," +
		servers[2].Addr + "?node-timeout=2s"}
	servers[1].Shutdown(t)
	out, _ := s.ask(2, "doctor", "--json")
	named := false
	for _, f := range findings(t, out) {
		// On a busy machine another one may not answer in time either.
		if f.Code == "node-failed" && f.Node == servers[1].Addr {
			named = f.Severity == "failure"
		}
	}
	if !named {
		t.Errorf("%s does not name %s, which is down", out, servers[1].Addr)
	}
}

// TestDoctorOfADirectory: there is nothing to examine, and doctor says so.
func TestDoctorOfADirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	if _, err := s.ask(64, "doctor"); !strings.Contains(err, "no servers to examine") {
		t.Error(err)
	}
}
