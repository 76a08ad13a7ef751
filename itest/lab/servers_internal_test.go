//go:build unix

package lab

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// If a server syncs before it answers, a restart excuses nothing: what was checked before still
// counts.
func TestOnlyWhatIsNotSyncedMayBeForgotten(t *testing.T) {
	always, memory := &Node{Persistence: Always}, &Node{Persistence: Memory}
	for _, c := range []struct {
		name  string
		nodes []*Node
		want  bool
	}{
		{"all sync", []*Node{always, always}, false},
		{"one keeps nothing", []*Node{always, memory}, true},
		{"one syncs every second", []*Node{{Persistence: EverySec}}, true},
		{"one was told otherwise", []*Node{{Persistence: Always, unsure: true}}, true},
	} {
		if got := mayForget(c.nodes); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// recorded returns what a run has recorded so far, of one kind.
func recorded(t *testing.T, r *run, kind history.Kind) (found []history.Record) {
	t.Helper()
	h, err := history.Read(filepath.Join(r.config.Dir, "lab.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return map[history.Kind][]history.Record{history.Violation: h.Violations,
		history.Fault: h.Faults, history.Plan: h.Plans}[kind]
}

// recording returns a run that has only its log.
func recording(t *testing.T, c Config) *run {
	t.Helper()
	c.Dir = t.TempDir()
	r := &run{config: c}
	var err error
	if r.log, err = history.Create(filepath.Join(c.Dir, "lab.jsonl"), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.log.Close() })
	return r
}

// A client or a server that ended by itself does not count as ended by the nemesis when the nemesis
// kills it later.
func TestCrashIsNoKill(t *testing.T) {
	for _, crashes := range []bool{true, false} {
		r := recording(t, Config{})
		script := "echo the reason >&2; exit 2"
		if !crashes {
			script = "exec sleep 1000"
		}
		begin := func(name string) *process {
			p, err := start(exec.Command("sh", "-c", script), filepath.Join(r.config.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if crashes {
				<-p.exited
			}
			return p
		}
		c := &client{slot: "c1", name: "c1.1", process: begin("c1.1.log"),
			logs: []string{filepath.Join(r.config.Dir, "c1.1.jsonl")}}
		r.kill(c)
		node := &Node{Name: "n1", dir: r.config.Dir, process: begin("log")}
		r.crashed(node.Kill())
		r.crashed(node.Kill()) // it is known by now
		var got []string
		for _, v := range recorded(t, r, history.Violation) {
			if v.Name != "crash" || !strings.Contains(v.Err, "the reason") {
				t.Errorf("recorded %+v", v)
			}
			name, _, _ := strings.Cut(v.Err, " ")
			got = append(got, name)
		}
		if want := []string{"c1.1", "n1"}; crashes && !slices.Equal(got, want) {
			t.Errorf("crashes of %q were recorded, want %q", got, want)
		} else if !crashes && got != nil {
			t.Errorf("crashes of %q were recorded, and none had ended by itself", got)
		}
	}
}

// A killed server leaves no process behind that goes on in its directory, such as the one that
// rewrites its file.
func TestKillLeavesNobodyBehind(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo started; wait")
	cmd.Stdout = write
	p, err := start(cmd, filepath.Join(t.TempDir(), "log"))
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(read)
	if line, err := said.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	p.kill()
	// A process that is left has the output, too. If none is left, the output has ended, and there
	// is no wait.
	read.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := said.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("somebody is left: %v", err)
	}
}

// No mode names a fault that cannot come up in it, and every fault has a mode.
func TestEveryFaultHasAMode(t *testing.T) {
	modes := slices.Concat(Promises, Limits)
	planned := make(map[string]bool)
	for _, c := range modes {
		if err := c.valid(); err != nil {
			t.Errorf("%s: %v", c.Mode(), err)
		}
		if c.Stores {
			continue
		}
		r := recording(t, c)
		r.nemeses()
		plans := recorded(t, r, history.Plan)
		for _, p := range plans {
			planned[p.Name] = true
			if p.Count < 1 || Redis.kinds()[p.Target] == nil {
				t.Errorf("%s: planned %+v", c.Mode(), p)
			}
		}
		if len(plans) < 15 {
			t.Errorf("%s: only %d faults are planned", c.Mode(), len(plans))
		}
	}
	for kind, faults := range Redis.kinds() {
		for _, f := range faults {
			if !planned[f.name] {
				t.Errorf("%s: nowhere comes %q up", kind, f.name)
			}
		}
	}
	wrong := Config{Faults: []string{"restart", "eviction"}} // nothing that breaks assumptions
	if err := wrong.valid(); err == nil || !strings.Contains(err.Error(), `"eviction"`) {
		t.Errorf("a fault that can not come up gives %v", err)
	}
}

// All faults come up before one comes up again.
func TestFaultsComeUpInTurns(t *testing.T) {
	for _, n := range recording(t, Config{Nodes: 1, Persistence: Memory, Limits: true}).nemeses() {
		for range 3 {
			var drawn, all []string
			for _, f := range n.faults {
				drawn, all = append(drawn, n.next().name), append(all, f.name)
			}
			slices.Sort(drawn)
			slices.Sort(all)
			if !slices.Equal(drawn, all) {
				t.Errorf("drawn %q of %q", drawn, all)
			}
		}
	}
}
