package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test program act as worker and proxy, as the benchmark does.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" || os.Getenv(proxyVariable) != "" ||
		os.Getenv(wholeVariable) != "" {
		main()
		return
	}
	// Otherwise each worker with the race detector sleeps for a second before it ends.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	os.Exit(m.Run())
}

// wholeVariable is the environment variable that makes the test program the benchmark.
const wholeVariable = "HOLDFAST_BENCH_WHOLE"

func TestEveryScenarioRunsWithEveryDriver(t *testing.T) {
	r := smoke(t, allScenarios(smokePlan), "-redis-only")
	// Values that do not depend on time must be right even in the smallest run.
	for _, c := range []struct {
		scenario, driver, metric string
		want                     float64
	}{
		{"latency", floor, "inner", 2},
		{"stored-100", floor, "keys", 0},
		{"stored-100", ours, "others", 0},
	} {
		if got := r.scenario(c.scenario).value(c.driver, c.metric).Median; got != c.want {
			t.Errorf("%s, %s: %s is %v, want %v", c.scenario, c.driver, c.metric, got, c.want)
		}
	}
}

func TestEveryScenarioOfASystemRuns(t *testing.T) {
	all := systems(smokePlan)
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	smoke(t, all, "-run", strings.Join(names, ","))
}

// Commits are compared by every driver of Holdfast that needs no more than Redis and files.
func TestCommitsAreComparedByAllOfOurs(t *testing.T) {
	for _, s := range allScenarios(smokePlan) {
		for _, name := range s.drivers {
			if strings.HasPrefix(name, ours) && !slices.Contains(outside, name) &&
				!slices.Contains(changing, name) {
				t.Errorf("%s: commits are not compared by %s", s.name, name)
			}
		}
	}
}

// smoke runs the benchmark with the flags, and checks that it measured the scenarios.
func smoke(t *testing.T, scenarios []*scenario, flags ...string) *report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	var out bytes.Buffer
	if err := run(t.Context(), append(flags, "-smoke", "-json", file), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	r, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(flags, "-redis-only") {
		for _, s := range scenarios {
			s.drivers = slices.DeleteFunc(slices.Clone(s.drivers), func(name string) bool {
				return slices.Contains(outside, name)
			})
		}
		scenarios = slices.DeleteFunc(scenarios, func(s *scenario) bool {
			return len(s.drivers) == 0
		})
	}
	if len(r.Scenarios) != len(scenarios) {
		t.Fatalf("%d scenarios in the results, want %d", len(r.Scenarios), len(scenarios))
	}
	for i, s := range scenarios {
		got := r.Scenarios[i]
		if got.Name != s.name || len(got.Drivers) != len(s.drivers) {
			t.Fatalf("results of %q with %d drivers, want %q with %d", got.Name, len(got.Drivers),
				s.name, len(s.drivers))
		}
		for j, name := range s.drivers {
			if got.Drivers[j].Name != name {
				t.Errorf("%s: driver %q, want %q", s.name, got.Drivers[j].Name, name)
			}
			checkDriver(t, s, got.Drivers[j])
		}
		for _, g := range got.Goals {
			checkGoal(t, got, g)
		}
		if !strings.Contains(out.String(), "\n"+s.name+": ") {
			t.Errorf("nothing is printed about %s", s.name)
		}
	}
	return r
}

// checkDriver checks that everything was measured.
func checkDriver(t *testing.T, s *scenario, d *driverReport) {
	t.Helper()
	// Where goroutines compete, another library may miss a wake-up and hang (seen with
	// rueidislock). That is its result, not our mistake. The scenario latency shows that it is
	// connected and works.
	if (slices.Contains(peers, d.Name) || slices.Contains(others, d.Name)) && s.name != "latency" {
		if d.Error != "" {
			t.Logf("%s, %s: %s", s.name, d.Name, d.Error)
		}
		return
	}
	if d.Error != "" {
		t.Errorf("%s, %s: %s", s.name, d.Name, d.Error)
	}
	for _, m := range s.metrics {
		// On a busy machine nothing may happen in so short a time, and then there is no share.
		ofNothing := m.Name == "per-handoff" || m.Name == "jain"
		if d.Metrics[m.Name] == nil && !(d.Name == bare && m.Name == "heap") &&
			!(d.Name != ours && m.Name == "second") && !ofNothing {
			t.Errorf("%s, %s: %s was not measured", s.name, d.Name, m.Name)
		}
	}
}

func checkGoal(t *testing.T, s *scenarioReport, g *goalReport) {
	t.Helper()
	scenario := s.Name
	failed := slices.ContainsFunc(s.Drivers, func(d *driverReport) bool {
		return d.Error != "" && strings.HasSuffix(g.Goal, " "+d.Name)
	})
	switch {
	case g.Reached != nil || strings.Contains(g.Goal, "peer"):
	case failed: // which checkDriver has judged
	case scenario == "processes" || scenario == "permits" ||
		strings.HasSuffix(scenario, "-contended") || strings.HasPrefix(scenario, "crowd") ||
		strings.HasPrefix(g.Goal, "Jain"):
		// On a busy machine nothing may happen in so short a time.
		t.Logf("%s: nothing is known of the goal %q", scenario, g.Goal)
	default:
		t.Errorf("%s: nothing is known of the goal %q", scenario, g.Goal)
	}
}

// newServer starts a server for the test.
func newServer(t *testing.T) *server {
	t.Helper()
	s, err := startServer(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func TestRunRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, arguments := range [][]string{{"-smoke", "-redis-only", "-run", "nothing"},
		{"-smoke", "-redis-only", "-drivers", "nothing"},
		{"-smoke", "-redis-only", "more"}, {"-unknown"}} {
		var out bytes.Buffer
		if err := run(t.Context(), arguments, &out); err == nil {
			t.Errorf("%v is accepted", arguments)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-list"}, &out); err != nil ||
		!strings.Contains(out.String(), "latency") {
		t.Errorf("-list: %v\n%s", err, &out)
	}
}

// cutShort is a writer that ends the run when the first scenario is printed.
type cutShort struct {
	bytes.Buffer
	end context.CancelCauseFunc
}

func (w *cutShort) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), "\nlatency: ") {
		w.end(errEnough)
	}
	return n, err
}

var errEnough = errors.New("enough")

func TestRunThatIsCutShortReportsWhatItHas(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	file := filepath.Join(t.TempDir(), "results.json")
	out := &cutShort{end: end}
	if err := run(ctx, []string{"-smoke", "-redis-only", "-json", file}, out); !errors.Is(err,
		errEnough) {
		t.Fatalf("error %v, want %v", err, errEnough)
	}
	r, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != 1 {
		t.Errorf("%d scenarios: want the one that was complete", len(r.Scenarios))
	}
}

func TestDriverThatFailsIsReported(t *testing.T) {
	s := &scenario{
		name: "scenario", drivers: []string{"good", "bad"}, floor: "good", rounds: 3,
		metrics: []metric{{"x", "", -1, 0}},
		goals: []goal{
			ratioGoal("bad", "x", "bad", "good", atMost, 1),
			valueGoal("good", "x", "good", atMost, 2),
		},
	}
	var asked []string
	s.measure = func(_ context.Context, _ *env, driver string) (sample, error) {
		asked = append(asked, driver)
		if driver == "bad" {
			return nil, errors.New("broken")
		}
		return sample{"x": float64(len(asked))}, nil
	}
	results := s.measureAll(t.Context(),
		&env{plan: plan{patience: time.Minute}, common: newServer(t)})
	if want := []string{"good", "bad", "good", "bad", "good", "bad"}; !slices.Equal(asked, want) {
		t.Errorf("measured %v, want %v", asked, want)
	}
	var r report
	r.add(s, results)
	if err := r.failure(); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("failure %v, want the driver's", err)
	}
	var out bytes.Buffer
	r.Scenarios[0].print(&out)
	for _, want := range []string{"bad failed: broken", "not measured: bad",
		"**not reached**: good: 3", "1 .. 5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
}

func TestDriversTakeTurns(t *testing.T) {
	var asked []string
	s := &scenario{drivers: []string{"a", "b", "c"},
		measure: func(_ context.Context, _ *env, driver string) (sample, error) {
			asked = append(asked, driver)
			return sample{}, nil
		}}
	s.measureAll(t.Context(), &env{plan: plan{rounds: 2, patience: time.Minute},
		common: newServer(t)})
	if want := []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(asked, want) {
		t.Errorf("measured %v, want %v", asked, want)
	}
}

func TestFloorIsTheFasterOne(t *testing.T) {
	r := &results{scenario: &scenario{metrics: []metric{{"p50", "us", -1, 0},
		{"pairs", "/s", 1, 0}}}, samples: map[string][]sample{
		ours:       {{"p50": 30, "pairs": 10}},
		floor:      {{"p50": 20, "pairs": 40}},
		floorStock: {{"p50": 15, "pairs": 20}},
	}}
	for _, c := range []struct {
		metric string
		want   float64
	}{{"p50", 2}, {"pairs", 0.25}} {
		g := ratioGoal("", c.metric, ours, floor, atMost, 1)
		if got := g.value(r); got != c.want {
			t.Errorf("%s: %v x the floor, want %v", c.metric, got, c.want)
		}
	}
}

// TestPeersMissNoScenario: a peer or a floor that may be the best is in all scenarios with peers or
// floors.
func TestPeersMissNoScenario(t *testing.T) {
	for _, s := range allScenarios(fullPlan) {
		if s.nodes < 2 || !slices.ContainsFunc(s.drivers, func(name string) bool {
			return slices.Contains(peers, name)
		}) {
			continue
		}
		if !slices.Contains(s.drivers, redsyncFast) {
			t.Errorf("%s: %s is missing", s.name, redsyncFast)
		}
	}
	for _, s := range allScenarios(fullPlan) {
		if s.floor == floor && !strings.HasPrefix(s.name, "stored") &&
			!slices.Contains(s.drivers, floorStock) {
			t.Errorf("%s: %s is missing", s.name, floorStock)
		}
	}
}

func TestGoalsAgainstTheBestPeer(t *testing.T) {
	more, less := metric{"more", "", 1, 0}, metric{"less", "", -1, 0}
	r := &results{scenario: &scenario{metrics: []metric{more, less}}, samples: map[string][]sample{
		ours:        {{"more": 30, "less": 1}},
		redisLock:   {{"more": 10, "less": 5}},
		rueidisLock: {{"more": 20, "less": 4}},
		blpop:       {{"more": 90, "less": 0.1}}, // no lock, and so no peer
	}}
	for _, c := range []struct {
		goal    goal
		want    float64
		reached bool
	}{
		{ratioGoal("", "more", ours, bestOf, atLeast, 1.5), 1.5, true},
		{ratioGoal("", "more", ours, bestOf, atLeast, 1.6), 1.5, false},
		{ratioGoal("", "less", ours, bestOf, atMost, 0.25), 0.25, true},
		{ratioGoal("", "less", ours, bestOf, atMost, 0.2), 0.25, false},
		{ratioGoal("", "more", ours, blpop, atLeast, 0.9), 1.0 / 3, false},
		{valueGoal("", "more", ours, atLeast, 30), 30, true},
		{valueGoal("", "more", floor, atLeast, 30), math.NaN(), false},
	} {
		got := c.goal.value(r)
		if fmt.Sprint(got) != fmt.Sprint(c.want) || c.goal.reached(got) != c.reached {
			t.Errorf("%v, reached %v; want %v, %v", got, c.goal.reached(got), c.want, c.reached)
		}
	}
}

func TestBoard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board")
	b, err := newBoard(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	other, err := newBoard(path) // the map of another process
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()

	b.enter(1)
	b.leave()
	from := b.begin()
	for _, worker := range []int{1, 2, 2, 1} {
		other.enter(worker)
		other.leave()
	}
	to, longest := b.end(2)
	if got := to.locks - from.locks; got != 4 {
		t.Errorf("%v locks, want 4", got)
	}
	if got := to.handoffs - from.handoffs; got != 2 {
		t.Errorf("%v handoffs, want 2: from 1 to 2 and back", got)
	}
	if longest <= 0 || longest > to.at-from.at {
		t.Errorf("longest wait %v of a measurement of %v", longest, to.at-from.at)
	}
	if n := b.overlaps.Load(); n != 0 {
		t.Errorf("%d overlaps, want none", n)
	}
	b.enter(1)
	other.enter(2)
	if n := b.overlaps.Load(); n != 1 {
		t.Errorf("%d overlaps with two holders, want 1", n)
	}
}

func TestBoardLongestWait(t *testing.T) {
	b := new(board)
	from := b.begin()
	open := int64(from.at)
	b.note(0, open, open+10)
	b.note(0, open, open+40)
	if got := b.workers[0].longest.Load(); got != 30 {
		t.Errorf("longest wait %d, want 30", got)
	}
	// The second worker never had the lock, so it waited all the time.
	if to, longest := b.end(2); longest != to.at-from.at {
		t.Errorf("longest wait %v, want all of %v", longest, to.at-from.at)
	}
	// Times before a measurement do not count in it.
	b.workers[0].last.Store(1)
	from = b.begin()
	b.note(0, int64(from.at), int64(from.at)+5)
	if got := b.workers[0].longest.Load(); got != 5 {
		t.Errorf("longest wait %d, want 5", got)
	}
}

func TestMonitorTellsScriptsFromClients(t *testing.T) {
	server := newServer(t)
	watch, err := server.monitor()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		// A value that looks like a script's line, and one that is longer than a buffer.
		for _, args := range [][]any{
			{"SET", "x", "[0 lua] \"get\""},
			{"SET", "x", strings.Repeat("y", 1<<17)},
			{"EVAL", "redis.call('get', KEYS[1]) return redis.call('del', KEYS[1])", "1", "x"},
		} {
			if _, err := server.do(args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	sent, inner, err := watch.stop()
	if err != nil || sent != 9 || inner != 6 {
		t.Errorf("%v sent, %v inner, %v; want 9 and 6", sent, inner, err)
	}
}

func TestSharedClockFollowsGoTime(t *testing.T) {
	first := now()
	begin := time.Now()
	for time.Since(begin) < time.Millisecond {
	}
	if second := now(); second-first < time.Millisecond {
		t.Errorf("%v passed, and %v on the shared clock", time.Since(begin), second-first)
	}
}

func TestDriverThatHangsIsClosedAndLeftOut(t *testing.T) {
	// A measurement with this driver ends only when the driver is closed.
	closed := make(chan struct{})
	s := &scenario{drivers: []string{"stuck", "good"}, rounds: 2,
		measure: func(_ context.Context, _ *env, driver string) (sample, error) {
			if driver == "stuck" {
				<-closed
			}
			return sample{"x": 1}, nil
		}}
	r := s.measureAll(t.Context(), &env{plan: plan{patience: time.Millisecond},
		common: newServer(t), opened: map[string]*locker{"stuck": {close: func() {
			close(closed)
		}}}})
	if !errors.Is(r.errors["stuck"], errStuck) || len(r.samples["stuck"]) != 0 {
		t.Errorf("error %v, %d samples of the one that hangs", r.errors["stuck"],
			len(r.samples["stuck"]))
	}
	select {
	case <-closed:
	default:
		t.Error("it was not closed")
	}
}

func TestWhatIsNotInstalledIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := versions([]string{etcdMutex, redlockNode, etcdctl})
	for _, want := range []string{"etcd for", "etcdctl for", "node for", "npm for",
		"scripts/install.sh bench", "-redis-only"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not name %s", err, want)
		}
	}
	if _, err := versions([]string{ours, floor, rueidisLock}); err != nil {
		t.Errorf("drivers that need only Redis: %v", err)
	}
}

func TestBoardTellsWaitsAndShares(t *testing.T) {
	b := new(board)
	b.waited(1, 0, time.Second) // before the measurement
	b.work(1, time.Second)
	b.begin()
	b.waited(1, 0, 10*time.Millisecond)
	b.waited(1, 1, 10*time.Millisecond)
	b.waited(2, 1, 30*time.Millisecond)
	b.waited(2, maxShares, 10*time.Millisecond) // has no share of its own, but its wait counts
	b.work(1, 3*time.Millisecond)
	b.work(2, 4*time.Millisecond)
	b.end(2)
	waits, shares, worked := b.shared(2, 2)
	if p50, most := waits.Percentile(0.5).Round(time.Millisecond),
		waits.Percentile(1).Round(time.Millisecond); p50 != 10*time.Millisecond ||
		most != 30*time.Millisecond {
		t.Errorf("p50 %v and most %v, want 10ms and 30ms", p50, most)
	}
	if want := []float64{1, 1, 0, 1}; !slices.Equal(shares, want) {
		t.Errorf("shares %v, want %v", shares, want)
	}
	if worked != 7*time.Millisecond {
		t.Errorf("worked for %v, want 7ms", worked)
	}
	b.begin()
	b.end(2)
	if waits, shares, worked := b.shared(2, 2); waits.Percentile(1) != 0 ||
		slices.Max(shares) != 0 || worked != 0 {
		t.Errorf("what was before a measurement counts in it: %v, %v, %v", waits.Percentile(1),
			shares, worked)
	}
}

func TestBoardTellsReadersAndWriters(t *testing.T) {
	b := new(board)
	from := b.begin()
	b.enterReader(1)
	b.enterReader(2)
	if n := b.overlaps.Load(); n != 0 {
		t.Errorf("readers beside each other: %d overlaps", n)
	}
	b.leaveReader(1)
	b.enter(1)
	if n := b.overlaps.Load(); n != 1 {
		t.Errorf("a writer beside a reader: %d overlaps, want 1", n)
	}
	b.enterReader(2)
	if n := b.overlaps.Load(); n != 2 {
		t.Errorf("a reader beside a writer: %d overlaps, want 2", n)
	}
	b.leave()
	b.leaveReader(2)
	b.leaveReader(2)
	b.enter(2)
	if n := b.overlaps.Load(); n != 2 {
		t.Errorf("a writer alone: %d overlaps, want 2", n)
	}
	if to, _ := b.end(2); to.locks-from.locks != 5 {
		t.Errorf("%v locks, want 5", to.locks-from.locks)
	}
}

// TestTurnsSeeTwoHolders: two goroutines hold one permit, or one permit each.
func TestTurnsSeeTwoHolders(t *testing.T) {
	for _, c := range []struct {
		name   string
		places [2]int
		want   error
	}{{"one permit", [2]int{1, 1}, errTwo}, {"two permits", [2]int{0, 1}, nil}} {
		turns := newCircle(2, 2)
		turns.place = func(i int, _ held) int { return c.places[i] }
		turns.locker = &locker{
			acquire: func(context.Context, string) (held, error) { return held{}, nil },
			release: func(context.Context, held) error { return nil },
		}
		turns.inside[c.places[0]].Add(1) // the first goroutine is inside
		if err := turns.turn(t.Context(), 1); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
