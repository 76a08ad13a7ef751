package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-go/holdfast/deploy/workload"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/prometheustest"
	"github.com/holdfast-go/holdfast/promhold"
)

// expression is one that the rules or the dashboard have.
type expression struct{ where, text string }

// A real Prometheus scrapes a program in which everything goes wrong, and applies the rules. Every
// expression of the rules and of the dashboard has to come to something.
func TestEveryExpressionReturnsData(t *testing.T) {
	server := startPrometheus(t, startTrouble(t))
	all := append(ruleExpressions(t, server), dashboardExpressions(t)...)
	if len(all) < 30 {
		t.Fatalf("only %d expressions", len(all))
	}
	for _, e := range all {
		testserver.Eventually(t, e.where+": "+e.text+" returns data", func() error {
			found, err := query(t.Context(), server, e.text)
			return errors.Join(err, testserver.Not(found > 0, "it returns nothing"))
		})
	}

	// What is wrong does not pass for an expression with data.
	if _, err := query(t.Context(), server, "sum by ("); err == nil {
		t.Error("what is no expression has no error")
	}
	for _, text := range []string{"holdfast_no_such_metric", "vector(0) / 0"} {
		if found, err := query(t.Context(), server, text); found != 0 || err != nil {
			t.Errorf("%s: %d samples, %v; want none", text, found, err)
		}
	}
}

// startTrouble starts the workload, and returns the address where its metrics are.
func startTrouble(t *testing.T) (address string) {
	t.Helper()
	metrics := promhold.New(promhold.WithResource(promhold.UpTo("/")))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- workload.Run(ctx, func() { close(ready) }, metrics) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal("the workload has ended")
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	go s.Serve(listener)
	t.Cleanup(func() { s.Close() })
	return listener.Addr().String()
}

func startPrometheus(t *testing.T, target string) prometheustest.Server {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [%q]
scrape_configs:
  - job_name: app
    static_configs: [{targets: [%q]}]
`, rules, target)
	server, err := prometheustest.StartIn(t.TempDir(),
		fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t)), config)
	if err != nil {
		t.Fatal(err)
	}
	server.EndWith(t, func() string { return "prometheus" })
	return server
}

// get asks the API, and reads data from its answer.
func get(ctx context.Context, server prometheustest.Server, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// query returns how many samples an expression has now that are numbers.
func query(ctx context.Context, server prometheustest.Server, text string) (found int, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	err = get(ctx, server, "/api/v1/query?query="+url.QueryEscape(text), &data)
	for _, sample := range data.Result {
		if sample.Value[1] != "NaN" {
			found++
		}
	}
	return found, err
}

// ruleExpressions are the expressions of all rules as the server has read them, and the names of
// those that record something.
func ruleExpressions(t *testing.T, server prometheustest.Server) (all []expression) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Query, Type string }
		}
	}
	if err := get(t.Context(), server, "/api/v1/rules", &data); err != nil {
		t.Fatal(err)
	}
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			all = append(all, expression{"rule " + rule.Name, rule.Query})
			if rule.Type == "recording" {
				all = append(all, expression{"record", rule.Name})
			}
		}
	}
	want := strings.Count(read(t, rulesFile), "- record: ")*2 + len(alerts(t))
	if len(all) != want {
		t.Fatalf("the server has %d expressions and records, want %d", len(all), want)
	}
	return all
}

// dashboard is what the tests read of one.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []struct {
		ID         int
		Title      string
		Datasource source
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			Expr       string
			Datasource source
		}
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	data, err := os.ReadFile("grafana/holdfast.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// dashboardExpressions are those of the dashboard, with its variables as they are at first.
func dashboardExpressions(t *testing.T) (all []expression) {
	t.Helper()
	variables := strings.NewReplacer("$job", ".*", "$resource", ".*", "$__rate_interval", "1m",
		"$__range", "1h")
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			text := variables.Replace(target.Expr)
			if strings.Contains(text, "$") {
				t.Errorf("%s: unknown variable: %s", panel.Title, text)
			}
			all = append(all, expression{panel.Title, text})
		}
	}
	return all
}

func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	variables := make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	for name, kind := range map[string]string{"datasource": "datasource", "job": "query",
		"resource": "query"} {
		if variables[name] != kind {
			t.Errorf("the variable %s is a %q, want a %s", name, variables[name], kind)
		}
	}
	want := source{"prometheus", "${datasource}"}
	ids, cells := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if p.Title == "" || len(p.Targets) == 0 || ids[p.ID] {
			t.Errorf("panel %d %q has no title, no target or the number of another one", p.ID,
				p.Title)
		}
		ids[p.ID] = true
		if p.Datasource != want {
			t.Errorf("%s asks %v, want %v", p.Title, p.Datasource, want)
		}
		for _, target := range p.Targets {
			if target.Datasource != want || target.Expr == "" {
				t.Errorf("%s has a target without expression, or asks %v", p.Title,
					target.Datasource)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if under := cells[[2]int{x, y}]; under != "" || x >= 24 {
					t.Fatalf("%s lies over %q at %d,%d", p.Title, under, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
