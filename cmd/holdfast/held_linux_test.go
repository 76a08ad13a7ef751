package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// TestForHowLongItIsHeld: Redis does not tell since when a lock is held. So a waiter says for how
// long it has seen the holder, and --no-wait says nothing about it. Neither shows the rest of the
// lease as the time to wait.
func TestForHowLongItIsHeld(t *testing.T) {
	t.Parallel()
	var addresses []string
	for range 3 {
		addresses = append(addresses, redistest.Start(t).Addr)
	}
	for _, address := range []string{"redis://" + addresses[0],
		"redlock://" + strings.Join(addresses, ",") + "?restart-guard=0s&node-timeout=20s"} {
		holdfast := func(args ...string) *exec.Cmd {
			cmd := exec.Command(holdfastPath, args...)
			cmd.Env = append(os.Environ(), "HOLDFAST_URL="+address, "TERM=xterm")
			return cmd
		}
		holder := startCommand(t, holdfast("run", longTTL, "--label=holder", "name", "--", "sh",
			"-c", "echo ready; read x"))
		holder.expect("ready")
		const by = `held by holder \(pid \d+ on \S+\)`
		busy := startCommand(t, holdfast("run", "--no-wait", "name", "--", "true"))
		busy.expectExit(75)
		busy.expectStderr(`^holdfast: "name" is ` + by +
			` \(lease (1h0m0s|59m\d+s), renewed while it lives\)\n$`)
		waiter, terminal := startOnTerminal(t, 200, holdfast("run", longTTL, "name", "--", "true"))
		waiter.expectStderr(`\r\x1b\[Kholdfast: waiting \d+s for "name", ` + by +
			` for at least \d+s \(lease \S+, renewed while it lives\), place 1 in the queue`)
		fmt.Fprint(terminal, controlC)
		waiter.expectExit(130)
		holder.stdin.Close()
		holder.ends()
	}
}
