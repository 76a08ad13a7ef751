package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// TestLeaderDocument does what docs/leader.md says to a service manager and to a container: it
// starts the unit's command on two machines that share only the server, as systemd would, and runs
// the health checks of both.
func TestLeaderDocument(t *testing.T) {
	t.Parallel()
	blocks := make(map[string]string)
	for _, b := range blocksOf(t, "docs/leader.md") {
		if blocks[b.kind] != "" {
			t.Errorf("two blocks of kind %q: which one is run?", b.kind)
		}
		blocks[b.kind] = strings.ReplaceAll(strings.Join(b.lines, "\n"), "\\\n", " ")
	}
	for kind := range blocks {
		if kind != "ini" && kind != "dockerfile" && kind != "yaml" {
			t.Errorf("nobody runs a block of kind %q", kind)
		}
	}
	for _, want := range []string{"Type=notify", "KillMode=mixed", "SuccessExitStatus=143"} {
		if !strings.Contains(blocks["ini"], "\n"+want+"\n") {
			t.Errorf("the unit does not say %q", want)
		}
	}
	server, bin := redistest.Start(t), t.TempDir()
	scheduler := filepath.Join(bin, "scheduler")
	writeProgram(t, scheduler, "#!/bin/sh\necho scheduler\nread x\n", 0o700)
	type machine struct {
		*process
		file   string
		socket net.PacketConn
	}
	boot := func() machine {
		t.Helper()
		dir := t.TempDir()
		m := machine{file: filepath.Join(dir, "status.json")}
		var err error
		if m.socket, err = net.ListenPacket("unixgram", filepath.Join(dir, "notify")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.socket.Close() })
		_, command, _ := strings.Cut(blocks["ini"], "ExecStart=")
		command, _, _ = strings.Cut(command, "\n")
		here := strings.NewReplacer("/usr/local/bin/holdfast", holdfastPath,
			"/usr/local/bin/scheduler", scheduler, "/run/scheduler", dir, "%H", "host")
		words := strings.Fields(command)
		for i, word := range words {
			words[i] = here.Replace(word) // a directory may have a space
		}
		_, env, _ := strings.Cut(blocks["ini"], "Environment=")
		env, _, _ = strings.Cut(env, "\n")
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = []string{strings.ReplaceAll(env, "locks.example.com", server.Addr),
			"NOTIFY_SOCKET=" + filepath.Join(dir, "notify"), "PATH=/usr/bin:/bin"}
		m.process = startCommand(t, cmd)
		if err := m.socket.SetReadDeadline(time.Now().Add(guard)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1000)
		if n, _, err := m.socket.ReadFrom(text); err != nil ||
			!strings.HasPrefix(string(text[:n]), "READY=1\n") {
			t.Errorf("the manager hears %q first, %v", text[:n], err)
		}
		return m
	}
	_, health, _ := strings.Cut(blocks["dockerfile"], " CMD test ")
	_, ready, _ := strings.Cut(blocks["yaml"], "command: [")
	ready, _, _ = strings.Cut(ready, "]")
	passes := func(m machine, check string) bool {
		file := "'" + m.file + "'"
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(check, "/tmp/leader.json", file))
		out, err := cmd.CombinedOutput()
		if len(out) > 0 {
			t.Errorf("%s: %s", check, out)
		}
		return err == nil
	}
	check := func(what string, m machine, leads bool) {
		t.Helper()
		state := "standby"
		if leads {
			state = "leading"
		}
		awaitStatus(t, m.file, what, func(s leadStatus) bool { return s.State == state })
		if !passes(m, "test "+health) {
			t.Errorf("%s: the health check fails", what)
		}
		if passes(m, strings.ReplaceAll(ready, ",", " ")) != leads {
			t.Errorf("%s: the readiness probe says the contrary", what)
		}
	}
	first := boot()
	first.expect("scheduler")
	second := boot()
	check("the first one leads", first, true)
	check("the second one stands by", second, false)
	first.signal(syscall.SIGTERM)
	first.expectExit(143)
	second.expect("scheduler")
	check("the second one leads", second, true)
	old := machine{file: filepath.Join(bin, "old")}
	if err := os.WriteFile(old.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old.file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if passes(old, "test "+health) {
		t.Error("the health check passes on a file that nobody has written for an hour")
	}
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
}
