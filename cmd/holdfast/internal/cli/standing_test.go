package cli_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

// TestWhoIsShownToLead: a candidate that leads is shown as the leader at once, whoever led before,
// though the backend is asked each second only. One whose term has ended is not, even while the
// backend does not tell who leads then. If it leads again by the same lease, the backend tells
// nothing new. Nor does it if it has told who leads now while the lost term was still ending. What
// it tells during a term may be an answer from before, and is not shown.
func TestWhoIsShownToLead(t *testing.T) {
	other := election.Leader{Holder: driver.Owner{Value: "x/h/6/other", Label: "other", Host: "h",
		PID: 6}, Token: 2}
	me := election.Leader{Holder: driver.Owner{Value: "x/h/7/me", Label: "me", Host: "h", PID: 7},
		Token: 3}
	states, leaders, err := cli.Stood(other, me)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"standby", "leading", "leading", "standby", "leading", "leading", "leading",
		"standby"}
	if !slices.Equal(states, want) {
		t.Errorf("the states are %q; want %q", states, want)
	}
	want = []string{other.String(), me.String(), me.String(), "", me.String(), me.String(),
		me.String(), other.String()}
	if !slices.Equal(leaders, want) {
		t.Errorf("the leaders are %q; want %q", leaders, want)
	}
}

// TestLeaderCallsItselfWhatOthersSee compares what a candidate calls itself with what the backend
// shows of it.
func TestLeaderCallsItselfWhatOthersSee(t *testing.T) {
	for _, announce := range []string{"", "10.0.0.7:8080"} {
		const label = "a/b\tc"
		l, err := holdfast.New(memhold.New(), holdfast.WithLabel(label))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		options, self, err := cli.CandidateOf(l, label, announce)
		if err != nil {
			t.Fatal(err)
		}
		e, err := election.New(l, "name", options...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		e.Run(ctx, func(context.Context, election.Term) error {
			defer cancel()
			leader, err := e.Leader(ctx)
			if err != nil || leader.String() != self {
				t.Errorf("the backend shows %q, %v; it calls itself %q", leader, err, self)
			}
			return nil
		})
	}
}
