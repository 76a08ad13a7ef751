package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// TestBoardDocument starts each board of docs/board.md, and compares what it prints with what is
// written there. Ports are replaced by free ones, because a test cannot have fixed ones. A token
// that the board makes up is different each time.
func TestBoardDocument(t *testing.T) {
	t.Parallel()
	server, token := redistest.Start(t), filepath.Join(t.TempDir(), "board-token")
	server.Do(t, "ACL", "SETUSER", "looks", "on", ">secret", "~*", "&*", "+@read", "+@connection")
	if err := os.WriteFile(token, []byte(strings.Repeat("x", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("locks.example.com", server.Addr,
		"/etc/holdfast/board-token", token, "10.0.0.7:8420", "127.0.0.1:0")
	changing := regexp.MustCompile(`:\d+/(#token=[A-Z2-7]{26}$)?`)
	boards := 0
	for _, b := range blocksOf(t, "docs/board.md") {
		command, found := strings.CutPrefix(b.lines[0], "$ holdfast ")
		if !found || b.kind != "text" || len(b.lines) != 2 {
			t.Errorf("nobody runs a block of kind %q: %q", b.kind, b.lines)
			continue
		}
		boards++
		words := strings.Fields(command)
		for i, word := range words {
			words[i] = here.Replace(word) // a directory may have a space
		}
		if !strings.Contains(command, "--listen") {
			words = append(words, "--listen=127.0.0.1:0")
		}
		cmd := exec.Command(holdfastPath, words...)
		cmd.Env = []string{"HOLDFAST_URL=" + server.URL(), "GORACE=" + os.Getenv("GORACE")}
		p := startCommand(t, cmd)
		printed := changing.ReplaceAllStringFunc(p.line(), func(text string) string {
			if !strings.Contains(text, "#") {
				return ":8420/"
			}
			return ":8420/#token=ERGB7WKZKZ4PNNXIP2IBCJEUZE"
		})
		if want := strings.Replace(b.lines[1], "10.0.0.7", "127.0.0.1", 1); printed != want {
			t.Errorf("%s prints %q, and the document says %q", command, printed, want)
		}
		p.signal(syscall.SIGTERM)
		p.expectExit(143)
	}
	if boards != 3 {
		t.Errorf("%d boards, want 3", boards)
	}
}
