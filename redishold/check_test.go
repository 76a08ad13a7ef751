package redishold_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// found returns the findings, which have to be well formed, and with the worst first.
func found(t *testing.T, b *redishold.Backend) []driver.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	findings, err := b.Check(ctx)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	for i, f := range findings {
		if f.Code == "" || f.Severity < driver.Note || f.Severity > driver.Failure ||
			!strings.HasSuffix(f.Summary, ".") ||
			!strings.HasSuffix(f.Advice, ".") || strings.Contains(f.Summary+f.Advice, "\n") {
			t.Errorf("not well formed: %+v", f)
		}
		if i > 0 && f.Severity > findings[i-1].Severity {
			t.Errorf("%s comes before %s, and is less severe", findings[i-1].Code, f.Code)
		}
	}
	return findings
}

// graded returns the findings as code:severity in alphabetical order.
func graded(findings []driver.Finding) []string {
	var codes []string
	for _, f := range findings {
		codes = append(codes, fmt.Sprint(f.Code, ":", f.Severity))
	}
	slices.Sort(codes)
	return codes
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const note, warning, failure = driver.Note, driver.Warning, driver.Failure
	durable := redistest.WithAOF("always")
	for name, c := range map[string]struct {
		options []redistest.Option
		config  []string // set live
		guard   time.Duration
		want    []string
	}{
		"durable":   {options: []redistest.Option{durable}},
		"in memory": {want: []string{fmt.Sprint("persistence:", warning)}},
		"in memory with quarantine": {guard: time.Minute,
			want: []string{fmt.Sprint("persistence:", note)}},
		"snapshots": {config: []string{"save", "60 1"},
			want: []string{fmt.Sprint("persistence:", warning)}},
		"once a second": {options: []redistest.Option{redistest.WithAOF("everysec")},
			want: []string{fmt.Sprint("fsync:", note)}},
		"never": {options: []redistest.Option{redistest.WithAOF("no")},
			want: []string{fmt.Sprint("fsync:", note)}},
		"not while it rewrites": {options: []redistest.Option{durable},
			config: []string{"no-appendfsync-on-rewrite", "yes"},
			want:   []string{fmt.Sprint("fsync:", note)}},
		"switched off live": {options: []redistest.Option{durable},
			config: []string{"appendonly", "no"},
			want:   []string{fmt.Sprint("persistence:", warning)}},
		"evicts anything": {options: []redistest.Option{durable},
			config: []string{"maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"},
			want:   []string{fmt.Sprint("eviction-policy:", failure)}},
		"evicts what expires": {options: []redistest.Option{durable},
			config: []string{"maxmemory", "100mb", "maxmemory-policy", "volatile-ttl"},
			want:   []string{fmt.Sprint("eviction-policy:", failure)}},
		"would evict": {options: []redistest.Option{durable},
			config: []string{"maxmemory-policy", "allkeys-random"},
			want:   []string{fmt.Sprint("eviction-policy:", warning)}},
		"refuses when memory runs out": {options: []redistest.Option{durable},
			config: []string{"maxmemory", "100mb"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, c.options...)
			for i := 0; i < len(c.config); i += 2 {
				server.Do(t, "CONFIG", "SET", c.config[i], c.config[i+1])
			}
			b := open(t, server.URL())
			b.Guard(c.guard)
			findings := found(t, b)
			if got := graded(findings); !slices.Equal(got, c.want) {
				t.Errorf("%+v; want %v", findings, c.want)
			}
			// A client of the application's own, whose connections were not looked at, finds the
			// same.
			shared := newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}})
			shared.Guard(c.guard)
			if got := graded(found(t, shared)); !slices.Equal(got, c.want) {
				t.Errorf("over a shared client: %v; want %v", got, c.want)
			}
			for _, f := range findings {
				if f.Node != server.Addr {
					t.Errorf("node %q; want %s", f.Node, server.Addr)
				}
			}
		})
	}
}

// Whoever locks refuses a server that contradicts durable=always. Whoever only looks, as holdfast
// doctor does, finds why.
func TestCheckFindsWhatContradictsDurable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	b := open(t, server.URL()+"?durable=always", redishold.WithReadOnly())
	if findings := found(t, b); len(findings) > 0 {
		t.Errorf("of a durable server: %+v", findings)
	}
	for _, c := range []struct{ setting, bad, good, code string }{
		{"appendfsync", "everysec", "always", "fsync"},
		{"no-appendfsync-on-rewrite", "yes", "no", "fsync"},
		{"appendonly", "no", "yes", "persistence"},
	} {
		server.Do(t, "CONFIG", "SET", c.setting, c.bad)
		b.Guard(time.Minute)
		findings := found(t, b)
		if len(findings) != 1 || findings[0].Severity != driver.Failure ||
			findings[0].Code != c.code ||
			!strings.Contains(findings[0].Summary, c.setting+" "+c.bad) {
			t.Errorf("%s %s: %+v; want a failure %s", c.setting, c.bad, findings, c.code)
		}
		server.Do(t, "CONFIG", "SET", c.setting, c.good)
	}
}

// R10: a server with replicas is not independent, and a failover may forget its locks.
func TestR10_CheckFindsReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	host, port, _ := strings.Cut(server.Addr, ":")
	replica := redistest.Start(t, redistest.WithAOF("always"),
		redistest.WithArgs("--replicaof", host, port))
	testserver.Eventually(t, "the replica is attached", func() error {
		return testserver.Not(replica.Info(t, "master_link_status") == "up", "not yet")
	})
	b := open(t, server.URL())
	if got, want := graded(found(t, b)),
		[]string{fmt.Sprint("replicas:", driver.Warning)}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got, want := graded(found(t,
		newShared(t, rueidis.ClientOption{InitAddress: []string{replica.Addr}}))),
		[]string{fmt.Sprint("role:", driver.Failure)}; !slices.Equal(got, want) {
		t.Errorf("of the replica itself: %v; want %v", got, want)
	}
	// One that was a primary when it was connected to.
	server.Do(t, "REPLICAOF", "127.0.0.1", "1")
	if got := graded(found(t, b)); !slices.Contains(got, fmt.Sprint("role:", driver.Failure)) {
		t.Errorf("of a primary that is none any more: %v", got)
	}
}

func TestCheckFindsAClockThatIsOff(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithAOF("always"), redistest.WithClock(clock))
	b := open(t, server.URL())
	if findings := found(t, b); len(findings) != 0 {
		t.Errorf("with the right time: %+v", findings)
	}
	for shift, words := range map[time.Duration]string{time.Minute: "ahead",
		-2 * time.Minute: "behind"} {
		clock.Step(t, shift)
		testserver.Eventually(t, "a clock that is off is found", func() error {
			findings := found(t, b)
			return testserver.Not(len(findings) == 1 && findings[0].Code == "clock" &&
				findings[0].Severity == driver.Warning &&
				strings.Contains(findings[0].Summary, words),
				"%v: %+v; want %q", shift, findings, words)
		})
		clock.Step(t, -shift)
	}
}

// A user without permission to read the configuration gets what INFO tells, and a note that there
// may be more.
func TestCheckWithoutConfig(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, append([]string{"ACL", "SETUSER", "locks", "reset"}, access(t)...)...)
	want := []string{fmt.Sprint("not-checked:", driver.Note),
		fmt.Sprint("persistence:", driver.Warning)}
	findings := found(t, open(t, "redis://locks:secret@"+server.Addr))
	if got := graded(findings); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	for _, f := range findings {
		if f.Code == "not-checked" && !strings.Contains(f.Summary, "NOPERM") {
			t.Errorf("%q does not say why", f.Summary)
		}
	}
}

// All servers of a cluster are looked at, and each is named.
func TestCheckOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	bad := cluster.Primaries[1]
	bad.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	for _, f := range found(t, open(t, cluster.URL())) {
		if (f.Code == "eviction-policy") != (f.Node == bad.Addr && f.Code != "persistence") {
			t.Errorf("%+v", f)
		}
	}
}

func TestCheckOfADeadServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	server.Kill()
	testserver.Eventually(t, "the server is missed", func() error {
		findings, err := b.Check(t.Context())
		return testserver.Not(err != nil && strings.Contains(err.Error(), "refused"), "%+v, %v",
			findings, err)
	})
}

// Check finds a durable server that has no way to say that it was emptied. The others are asked
// with each claim.
func TestCheckFindsABlindClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	server.Do(t, "ACL", "SETUSER", "default", "-client|tracking")
	blind := []string{fmt.Sprint("blind:", driver.Warning)}
	for query, want := range map[string][]string{"": nil, "?durable=always": blind} {
		b := open(t, server.URL()+query)
		if got := graded(found(t, b)); len(got) > 0 {
			t.Errorf("%q without a guard: %v", query, got)
		}
		b.Guard(time.Minute)
		if got := graded(found(t, b)); !slices.Equal(got, want) {
			t.Errorf("%q: %v; want %v", query, got, want)
		}
	}
}
