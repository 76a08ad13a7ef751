package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/report"
)

// A run with two holders: one finding with an excuse, and one without.
func twoHolders() report.Run {
	at := func(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
	h := history.Assemble([]history.Record{
		{Kind: history.Mark, Name: lab.Faults, At: at(1)},
		{Kind: history.Ask, Client: "c1.1", Op: 1, Key: "key1", At: at(2)},
		{Kind: history.Grant, Client: "c1.1", Op: 1, Key: "key1", At: at(2.1), Token: 1700000000000001, Until: at(4)},
		{Kind: history.Fault, Name: "restart, memory", Target: "n1", At: at(2.5), Until: at(3), Breaks: "forgot <it>"},
		{Kind: history.Ask, Client: "c2.1", Op: 1, Key: "key1", At: at(3)},
		{Kind: history.Grant, Client: "c2.1", Op: 1, Key: "key1", At: at(3.1), Token: 1700000000000002, Until: at(5)},
		{Kind: history.Violation, Name: "orphans", At: at(6), Err: "n1 still has keys: <lock:key1>\nand more"},
		{Kind: history.Mark, Name: lab.Calm, At: at(40)},
	})
	result := &lab.Result{Config: lab.Config{Nodes: 1, Persistence: lab.Memory, Clients: 2, Limits: true, Duration: 39 * time.Second}, History: h}
	return report.Run{Result: result, Found: check.All(h, check.Rules{TTL: time.Second})}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	env := report.Environment{Commit: "abc", Redis: "Redis 7", Go: "go1.25", Cores: 2, Seed: 7, Duration: time.Hour, Date: "today"}
	if err := report.Write(dir, env, []report.Run{twoHolders()}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "torture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"`make torture DURATION=1h SEED=7`", "**1 violations in 39s of faults.**", "1 times: forgot", "**Violation**: orphans", "exclusion: forgot <it>: 1 times",
		"single Redis, nothing kept through a restart, assumptions broken", "restart 1", "](torture-1.svg)",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("lacks %q:\n%s", want, data)
		}
	}
}

func TestTimelineIsXML(t *testing.T) {
	run := twoHolders()
	picture := string(report.Timeline(run.Result, run.Found))
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, picture)
		}
	}
	for _, want := range []string{">n1<", ">c2<", ">key1<", "token 1700000000000002", "beside another holder", "forgot &lt;it&gt;"} {
		if !strings.Contains(picture, want) {
			t.Errorf("lacks %q:\n%s", want, picture)
		}
	}
}
