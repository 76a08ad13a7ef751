package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/prometheustest"
)

const (
	rulesFile = "prometheus/holdfast.rules.yml"
	casesFile = "prometheus/holdfast.rules.test.yml"
	alertsDoc = "docs/alerts.md"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// alerts are the names of the alerts in the rules.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(
		read(t, rulesFile), -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatal("the rules have no alert")
	}
	return names
}

func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := prometheustest.Promtool()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func TestRulesAreValid(t *testing.T) {
	if out, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal",
		rulesFile); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRulesFireAndDoNotFire(t *testing.T) {
	if out, err := promtool(t, "test", "rules", casesFile); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Both kinds of case are there for each alert; that they are right is the test above.
func TestEveryAlertHasCases(t *testing.T) {
	cases := read(t, casesFile)
	for _, alert := range alerts(t) {
		if !strings.Contains(cases, "alertname: "+alert+"\n        exp_alerts: []\n") {
			t.Errorf("no case shows that %s does not fire", alert)
		}
		if !strings.Contains(cases, "alertname: "+alert+"\n        exp_alerts:\n") {
			t.Errorf("no case shows that %s fires", alert)
		}
	}
}

// The cases notice if a threshold, a selector or a duration changes.
func TestCasesNoticeOtherRules(t *testing.T) {
	rules := read(t, rulesFile)
	for _, change := range []struct{ from, to string }{
		{"p99_rate5m > 1\n", "p99_rate5m > 10\n"},
		{"p99_rate5m > 1\n", "p99_rate5m > 0.5\n"},
		{`{cause!="closed"}`, ``},
		{`{cause!="closed"}`, `{cause="lease"}`},
		{"> 0.05", "> 0.001"},
		{"> 0.05", "> 0.5"},
		{`{cause=~"unavailable|unknown"}`, ``},
		{`{cause=~"unavailable|unknown"}`, `{cause="unavailable"}`},
		{`{resource!="election"}`, ``},
		{"[10m])) == 0", "[10m])) > 0"},
		{"and sum by (job, resource) (increase(holdfast_acquisitions_total[10m])) == 0", ""},
		{`state=~"down|refusing|duplicate"`, `state="down"`},
		{`state=~"down|refusing|duplicate"`, `state=~"down|refusing|quarantined"`},
		{`state=~"up|unasked"`, `state="up"`},
		{"< holdfast_nodes_needed", "<= holdfast_nodes_needed"},
		{"        for: 15m\n", ""},
		{"max by (job, quorum, node) (", "min by (job, quorum) ("},
	} {
		t.Run(change.from+" to "+change.to, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(rules, change.from) {
				t.Fatal("the rules do not have that")
			}
			dir := t.TempDir()
			for name, data := range map[string]string{
				rulesFile: strings.Replace(rules, change.from, change.to, 1),
				casesFile: read(t, casesFile),
			} {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(data),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := promtool(t, "test", "rules", filepath.Join(dir, filepath.Base(casesFile)))
			if err == nil || !strings.Contains(out, "exp:") {
				t.Errorf("the cases pass: %v\n%s", err, out)
			}
		})
	}
}

// Each alert says where it is explained, and each explanation is of an alert.
func TestEveryAlertHasItsSection(t *testing.T) {
	rules, doc := read(t, rulesFile), read(t, "../"+alertsDoc)
	sections := make(map[string]bool)
	for _, match := range regexp.MustCompile(`(?m)^## (Holdfast\w+)$`).FindAllStringSubmatch(doc,
		-1) {
		sections[match[1]] = true
	}
	for _, alert := range alerts(t) {
		if !sections[alert] {
			t.Errorf("%s has no section for %s", alertsDoc, alert)
		}
		delete(sections, alert)
		runbook := "runbook: " + alertsDoc + "#" + strings.ToLower(alert) + "\n"
		if n := strings.Count(rules, runbook); n != 1 {
			t.Errorf("%d rules have %q, want one", n, runbook)
		}
	}
	for section := range sections {
		t.Errorf("%s has a section for %s, which is no alert", alertsDoc, section)
	}
}
