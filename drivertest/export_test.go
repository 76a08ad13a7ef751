package drivertest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/faketb"
)

// RuleNames returns the names of all rules.
func RuleNames() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}

// RulesFor returns the names of the rules that apply to the harness.
func RulesFor(harness Harness) []string {
	var names []string
	for _, r := range rules() {
		if r.applies(harness.Capabilities.features()) {
			names = append(names, r.name)
		}
	}
	return names
}

// Broken runs one rule as Run would and reports whether it failed, without failing t. The rule
// must apply to the harness.
func Broken(t *testing.T, harness Harness, name string) (failed bool, log string) {
	t.Helper()
	harness.setDefaults()
	for _, r := range rules() {
		if r.name != name {
			continue
		}
		if !r.applies(harness.Capabilities.features()) {
			t.Fatalf("rule %s does not apply to the harness", name)
		}
		harness.inTime(t, func(t *testing.T) {
			rec := &faketb.Recorder{TB: t}
			rec.Run(func() { harness.check(rec, r) })
			failed, log = rec.Failed(), rec.Text()
		})
		return failed, log
	}
	t.Fatalf("there is no rule %s", name)
	return false, ""
}
