package cli_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
)

// TestWhoseTermIsOverLeadsNoMore: a candidate whose term has ended is not shown as the leader, even
// while the backend does not tell who leads then. If it leads again by the same lease, the backend
// tells nothing new.
func TestWhoseTermIsOverLeadsNoMore(t *testing.T) {
	me := election.Leader{Holder: driver.Owner{Value: "x/h/7/me", Label: "me", Host: "h", PID: 7},
		Token: 3}
	states, leaders, err := cli.Stood(me)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"leading", "leading", "standby", "leading", "leading"}
	if !slices.Equal(states, want) {
		t.Errorf("the states are %q; want %q", states, want)
	}
	want = []string{"", me.String(), "", me.String(), ""}
	if !slices.Equal(leaders, want) {
		t.Errorf("the leaders are %q; want %q", leaders, want)
	}
}
