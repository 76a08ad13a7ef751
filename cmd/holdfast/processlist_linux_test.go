package main_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestNoSecretInTheProcessList: the process list shows how holdfast was started, but no password.
func TestNoSecretInTheProcessList(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const secret = "hunter"
	for _, flag := range [][]string{
		{"--on=redis://user:" + secret + "@" + silent.Addr().String()},
		{"--on", "redis+sentinel://" + silent.Addr().String() + "/p?sentinel-password=" + secret},
	} {
		p := startCommand(t,
			exec.Command(holdfastPath, append(append([]string{"run"}, flag...), "name", "--",
				"true")...))
		testserver.Eventually(t, "the process list does not show it", func() error {
			p.running()
			// It is empty at first: Start returns before the system has noted the arguments.
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			return testserver.Not(!bytes.Contains(line, []byte(secret)) &&
				bytes.Contains(line, []byte("name\x00--\x00true")), "%q", line)
		})
	}
}
