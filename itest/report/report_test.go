//go:build unix

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
func twoHolders() (*lab.Result, []check.Finding) {
	at := func(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
	granted := func(client string, token uint64, from, to float64) history.Record {
		return history.Record{Kind: history.Call, Name: history.Acquire, Target: "n1",
			Client: client, Key: "key1", Owner: client + "'s", Token: token, Block: 1,
			Outcome: "held", At: at(from), Until: at(to), TTL: at(2)}
	}
	h := history.Assemble([]history.Record{
		granted("c1.1", 1700000000000001, 2, 2.1), granted("c2.1", 1700000000000002, 3, 3.1),
		{Kind: history.Mark, Name: history.Tormented, At: at(1)},
		{Kind: history.Plan, Name: "freeze", Target: "servers", Count: 6, At: at(1)},
		{Kind: history.Ask, Client: "c1.1", Op: 1, Key: "key1", At: at(2)},
		{Kind: history.Grant, Client: "c1.1", Op: 1, Key: "key1", At: at(2.1),
			Token: 1700000000000001, Until: at(4)},
		{Kind: history.Fault, Name: "restart, memory", Target: "n1", At: at(2.5), Until: at(3),
			Breaks: "forgot <it>"},
		{Kind: history.Ask, Client: "c2.1", Op: 1, Key: "key1", At: at(3)},
		{Kind: history.Grant, Client: "c2.1", Op: 1, Key: "key1", At: at(3.1),
			Token: 1700000000000002, Until: at(5)},
		{Kind: history.Violation, Name: "orphans", At: at(6),
			Err: "n1 still has keys: <lock:key1>\nand more"},
		{Kind: history.Mark, Name: history.Calm, At: at(40)},
		{Kind: history.Ask, Client: "probe.1", Op: 1, Key: "key1", At: at(41)},
		{Kind: history.Grant, Client: "probe.1", Op: 1, Key: "key1", At: at(41.1),
			Token: 1700000000000003, Until: at(42)},
	})
	result := &lab.Result{Config: lab.Config{Nodes: 1, Persistence: lab.Memory, Clients: 2,
		Limits: true, Duration: 39 * time.Second}, History: h}
	return result, append(check.All(h, check.Rules{TTL: time.Second}),
		check.Finding{Check: "linearizability", At: at(6), Open: true})
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	env := report.Environment{Commit: "abc", Redis: "Redis 7", Go: "go1.25", Cores: 2, Seed: 7,
		Duration: time.Hour, Parallel: 12, Date: "today"}
	result, found := twoHolders()
	if err := report.Write(dir, env, nil); err != nil {
		t.Fatal(err)
	}
	// A report replaces the one before as a whole. One that is not finished leaves it.
	page, before := filepath.Join(dir, "torture.md"), filepath.Join(dir, "before")
	if err := os.Link(page, before); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(dir, env, []*report.Run{report.Of(3, result, found)}); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(before); err != nil || strings.Contains(string(kept), "orphans") {
		t.Errorf("the report was written over the one before: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "torture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"`make torture DURATION=1h PARALLEL=12 SEED=7`", "of which 12 at most ran at once",
		"**2 violations in 39s of faults, with 2 acquisitions.**",
		"1 times nothing was shown, which counts as a violation", "1 times: forgot",
		"**Violation**: orphans", "exclusion: forgot <it>: 1 times",
		"n1 granted key1 to c1.1's and to c2.1's between",
		"single Redis, nothing kept through a restart, assumptions broken", "restart 1",
		"**Faults that did not come up: freeze.**", "| 39s | 3 | 2 | 0 | 1 | 1 | ",
		"](torture-3.svg)", "`torture-3.jsonl.gz`", "No wait was long enough to be judged",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("lacks %q:\n%s", want, data)
		}
	}
}

// A run whose clients wrote to stores adds a page on late writes. Other runs leave the page of an
// earlier report.
func TestReportOfGuards(t *testing.T) {
	at := func(kind history.Kind, client string, from int64, outcome string) history.Record {
		return history.Record{Kind: kind, Client: client, Op: 1, Name: "file", Key: "key1",
			At: from, Until: from + 1, Outcome: outcome, Twin: 1}
	}
	grant := func(client string, from int64, token uint64) history.Record {
		return history.Record{Kind: history.Grant, Client: client, Op: 1, Key: "key1", At: from,
			Until: from + 50, Token: token}
	}
	wrong := check.Finding{Check: "guards", Store: "file", Key: "key1", Text: "it ends with 7"}
	slow := wrong
	slow.Excuse = "slow"
	for _, c := range []struct {
		outcome, want, row string
		found              []check.Finding
	}{
		{history.Refused, "The guards\nrefused all 2 writes that came too late.",
			"| file | 4 | 2 | 0 | 2 |", nil},
		{history.Refused, "too late.\n\n**The checker found that 2 promises of guards were broken.**\n",
			"| file | 4 | 2 | 0 | 2 |", []check.Finding{wrong}},
		{history.Refused, "too late.\n\nTo 2 requests a guard did not answer in time.\n",
			"| file | 4 | 2 | 0 | 2 |", []check.Finding{slow}},
		{history.Accepted, "**The guards\naccepted 2 of 2 writes that came too late.**",
			"| file | 4 | 2 | 2 | 2 |", nil},
	} {
		h := history.Assemble([]history.Record{
			grant("c1.1", 10, 5), at(history.Enter, "c1.1", 20, history.Accepted),
			grant("c2.1", 70, 6), at(history.Enter, "c2.1", 80, history.Accepted),
			at(history.Write, "c2.1", 90, history.Accepted),
			at(history.Write, "c1.1", 100, c.outcome),
			{Kind: history.Final, Name: "file", Key: "key1", At: 200, Value: 1, Twin: 1},
		})
		config := lab.Stores
		config.Duration = 2 * time.Minute
		run := report.Of(1, &lab.Result{Config: config, History: h}, c.found)
		if run.Undone != 1 {
			t.Errorf("%d updates would have been undone; want 1", run.Undone)
		}
		dir := t.TempDir()
		if err := report.Write(dir, report.Environment{Databases: "MariaDB 11"},
			[]*report.Run{run, run}); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, report.Guards))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.want, c.row,
			"In our laboratory 2 updates would have been lost without a guard.",
			"MariaDB 11. To repeat it", "-modes 'guarded stores' -duration 4m\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("lacks %q:\n%s", want, page)
			}
		}
		other, found := twoHolders()
		if err := report.Write(dir, report.Environment{},
			[]*report.Run{report.Of(1, other, found)}); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(filepath.Join(dir, report.Guards)); err != nil ||
			string(after) != string(page) {
			t.Errorf("a run without stores has left %q, %v", after, err)
		}
	}
}

// Runs on other systems than Redis have a page of their own, and leave the other pages as they are.
func TestReportOfCoordinators(t *testing.T) {
	dir := t.TempDir()
	env := report.Environment{Redis: "Redis 7", Servers: "etcd 3", Seed: 7, Parallel: 1,
		Duration: time.Hour, Modes: "etcd"}
	result, found := twoHolders()
	redis := report.Of(1, result, found)
	result.Config.System, result.Config.Persistence = lab.Etcd, lab.Always
	etcd := report.Of(16, result, found)
	if err := report.Write(dir, env, []*report.Run{etcd}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "torture.md")); err == nil {
		t.Error("there is a page on Redis, on which nothing was run")
	}
	page, err := os.ReadFile(filepath.Join(dir, report.Coordinators))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"etcd 3", "## etcd, a cluster of 3, assumptions broken",
		"`go run ./itest/torture -modes 'etcd' -duration 1h -parallel 1 -seed 7 -report docs`",
		"**2 violations in 39s of faults, with 2 acquisitions.**", "](torture-16.svg)"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "Redis 7") {
		t.Errorf("it names the Redis, which was not there:\n%s", page)
	}
	if err := report.Write(dir, env, []*report.Run{redis, etcd}); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, "torture.md"))
	if err != nil || strings.Contains(string(first), "torture-16") ||
		!strings.Contains(string(first), "torture-1.svg") {
		t.Errorf("the page on Redis is %v:\n%s", err, first)
	}
}

func TestTimelineIsXML(t *testing.T) {
	picture := string(report.Timeline(twoHolders()))
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, picture)
		}
	}
	for _, want := range []string{">n1<", ">c2<", ">key1<", "token 1700000000000002",
		"beside another holder", "forgot &lt;it&gt;"} {
		if !strings.Contains(picture, want) {
			t.Errorf("lacks %q:\n%s", want, picture)
		}
	}
}
