package look_test

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// TestColumns: the process gives way first, then the host, then since when it is held; each only
// where the rest has no room with it, and none that must stay.
func TestColumns(t *testing.T) {
	const none = -1
	const host = 2
	rows := [][]string{look.Head, {"nightly", "backup", "vm", "10361", "0s", "1h0m0s", "0"}}
	all := len("NAME     HOLDER  HOST  PID    FOR  LEASE   WAITING")
	for _, test := range []struct {
		width, stays int
		head         string
		fit          bool
	}{
		{all, none, "NAME HOLDER HOST PID FOR LEASE WAITING", true},
		{all - 1, none, "NAME HOLDER HOST FOR LEASE WAITING", true},
		{all - 7, none, "NAME HOLDER HOST FOR LEASE WAITING", true},
		{all - 8, none, "NAME HOLDER FOR LEASE WAITING", true},
		{all - 13, none, "NAME HOLDER FOR LEASE WAITING", true},
		{all - 14, none, "NAME HOLDER LEASE WAITING", true},
		{all - 14, host, "NAME HOLDER HOST LEASE WAITING", false},
		{all - 18, none, "NAME HOLDER LEASE WAITING", true},
		{all - 19, none, "NAME HOLDER LEASE WAITING", false},
	} {
		most := func(int) int { return math.MaxInt }
		left, fit := look.Columns(rows, test.width, test.stays, most)
		head := strings.Join(look.Only(rows, left)[0], " ")
		if head != test.head || fit != test.fit {
			t.Errorf("in %d columns, %d stays: %q, fit %v; want %q, %v",
				test.width, test.stays, head, fit, test.head, test.fit)
		}
	}
}
