package faketb_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/faketb"
)

// The test around a recorder goes on where a test would end. Clean-ups run, the last one first.
func TestFailsForItselfOnly(t *testing.T) {
	var order []string
	rec := &faketb.Recorder{TB: t}
	rec.Run(func() {
		rec.Cleanup(func() { order = append(order, "first") })
		rec.Cleanup(func() {
			order = append(order, "second")
			rec.Fatal("in the clean-up")
		})
		rec.Errorf("%d", 1)
		rec.Fatalf("%d", 2)
		order = append(order, "not reached")
	})
	if !rec.Failed() || rec.Text() != "1\n2\nin the clean-up\n" {
		t.Errorf("failed is %v, and the text %q", rec.Failed(), rec.Text())
	}
	if !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("what ran is %q", order)
	}
	if t.Failed() {
		t.Error("the test around it has failed")
	}
	calm := &faketb.Recorder{TB: t}
	calm.Run(func() { calm.Log("fine") })
	if calm.Failed() || calm.Text() != "fine\n" {
		t.Errorf("without a failure failed is %v, and the text %q", calm.Failed(), calm.Text())
	}
}
