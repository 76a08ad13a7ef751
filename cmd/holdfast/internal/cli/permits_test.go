//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

// TestPermits: as many commands run at a time as there are permits, each with a slot of its own and
// nothing of an outer holdfast.
func TestPermits(t *testing.T) {
	t.Setenv("HOLDFAST_SLOT", "outer")
	_, witness := memory(t)
	other, err := holdfast.New(witness, holdfast.WithPrefix("pre/"), holdfast.WithPermits(2),
		holdfast.WithLabel("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	first, err := other.Acquire(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`[ "$HOLDFAST_KEY,$HOLDFAST_SLOT" = name,%d ] &&
		[ "$HOLDFAST_TOKEN" -gt 0 ] && exit 4`, 1-first.Slot())
	if got := job(witness.Client(), cli.Options{Permits: 2}, script); got.code != 4 ||
		got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	second, err := other.Acquire(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	got := job(witness.Client(), cli.Options{Permits: 2, NoWait: true}, "exit 0")
	if got.code != 75 || !strings.Contains(got.err.Error(), `"name" is held by other`) {
		t.Errorf("got %+v", got)
	}
	time.AfterFunc(10*time.Millisecond, func() { second.Release(context.Background()) })
	script = fmt.Sprintf(`[ "$HOLDFAST_SLOT" = %d ] && exit 4`, second.Slot())
	if got := job(witness.Client(), cli.Options{Permits: 2}, script); got.code != 4 {
		t.Errorf("got %+v", got)
	}
	script = `[ "${HOLDFAST_SLOT-}" = "" ]`
	if got := job(witness.Client(), cli.Options{}, script); got.code != 0 {
		t.Errorf("a command under a lock has the slot of an outer permit: %+v", got)
	}
}

// TestPermitLost: the loss of a permit ends the command, as that of a lock does.
func TestPermitLost(t *testing.T) {
	backend, witness := memory(t)
	g := newGate(t)
	done := make(chan outcome, 1)
	go func() {
		done <- job(backend, cli.Options{Permits: 1, TTL: leaseToLose},
			"read x <"+g.word()+"; sleep 60")
	}()
	defer g.wait(t)()
	if !witness.Faults().Lose("pre/name@permit/0") {
		t.Error("nobody has slot 0")
	}
	if got := <-done; got.code != 70 || !strings.Contains(got.stderr, `lock on "name" (token `) {
		t.Errorf("got %+v", got)
	}
}
