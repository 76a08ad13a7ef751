package main_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// everyExitCode makes run end with each code that its help documents, with locks at the address
// url: the kind of server makes no difference. down is an address of the same kind without a
// server. The code of a lost lock is left to the caller, who can take the lock away.
func everyExitCode(t *testing.T, url, down string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	command := func(stdout *os.File, args ...string) *process {
		cmd := exec.Command(holdfastPath, args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
		if stdout != nil {
			cmd.Stdout = stdout
		}
		return startCommand(t, cmd)
	}
	holder := command(nil, "hold", "--ttl=1m", "held by it")
	holder.line()
	seen := []string{"70"} // by the caller, too
	for _, test := range []struct {
		args []string
		code int
		help string
	}{
		{[]string{"run", "n", "--", "true"}, 0, "0-255"},
		{[]string{"run", "n", "--", "sh", "-c", "exit 69"}, 69, "0-255"},
		{[]string{"run", "n", "--", "sh", "-c", "kill -9 $$"}, 137, "0-255"},
		{[]string{"run", "n"}, 64, "64"},
		{[]string{"run", "--on=" + down, "n", "--", "true"}, 69, "69"},
		{[]string{"run", "--ttl=4s", "--max-hold=4s", "n", "--", "sleep", "3600"}, 70, "70"},
		{[]string{"run", "--no-wait", "held by it", "--", "true"}, 75, "75"},
		{[]string{"run", "--no-wait", "-E", "7", "held by it", "--", "true"}, 7, "75"},
		{[]string{"run", "--wait=5s", "held by it", "--", "true"}, 75, "75"},
		{[]string{"run", "n", "--", "/dev/null"}, 126, "126"},
		{[]string{"run", "n", "--", "no-such-command"}, 127, "127"},
	} {
		p := command(nil, test.args...)
		if p.ends(); p.code != test.code {
			t.Errorf("%q: exit code %d, want %d; stderr: %s", test.args, p.code, test.code,
				p.stderr)
		}
		seen = append(seen, test.help)
	}
	signalled := command(nil, "run", "held by it", "--", "true")
	signalled.expectStderr(`waiting for "held by it".*\n`)
	signalled.signal(syscall.SIGTERM)
	signalled.expectExit(143)
	command(full, "hold", "n").expectExit(74)
	seen = append(seen, "128+N", "74", "71")
	for limit := 8; ; limit++ { // with fewer no Go program starts
		cmd := exec.Command("sh", "-c", `ulimit -n "$0"; exec "$@"`, strconv.Itoa(limit),
			holdfastPath, "run", "n", "--", "true")
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
		p := startCommand(t, cmd)
		if p.ends(); p.code == 71 {
			break
		} else if p.code == 0 || limit > 40 {
			t.Errorf("with %d files run ends with %d, and with fewer never with 71; stderr: %s",
				limit, p.code, p.stderr)
			break
		}
	}
	for _, code := range exitCodes(t, "run") {
		if !slices.Contains(seen, code) {
			t.Errorf("nothing ends with %s, which the help documents", code)
		}
	}
	holder.signal(syscall.SIGTERM)
	holder.expectExit(0)
}
