package look_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// examined is a backend whose check has a result.
type examined struct{ err error }

func (e examined) Check(context.Context) ([]driver.Finding, error) {
	return []driver.Finding{{Code: "own"}}, e.err
}

// A prefix that may run into a name is noted, after what the backend has found.
func TestCheckOfAPrefix(t *testing.T) {
	for prefix, noted := range map[string]bool{
		"": false, "lock": true, "lock1": true, "schloß": true,
		"lock:": false, "lock/": false, "lock-": false, "lock ": false, "\xff": false} {
		found, err := (&look.View{Prefix: prefix}).Check(t.Context(), examined{})
		if err != nil || len(found) == 0 || found[0].Code != "own" {
			t.Fatalf("%q: %v, %v; want the backend's finding first", prefix, found, err)
		}
		if got := len(found) == 2 && found[1].Code == "prefix" &&
			found[1].Severity == driver.Note; got != noted || len(found) > 2 {
			t.Errorf("%q: found %v; want the prefix noted: %v", prefix, found, noted)
		}
		if noted && !strings.Contains(found[1].Advice, `"`+prefix+`:"`) {
			t.Errorf("%q: the advice is %q", prefix, found[1].Advice)
		}
	}
	fault := errors.New("no answer")
	if _, err := (&look.View{Prefix: "lock"}).Check(t.Context(), examined{fault}); err != fault {
		t.Errorf("error %v, want the backend's", err)
	}
}
