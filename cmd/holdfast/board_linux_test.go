package main_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// board is holdfast board, and a client that looks at it.
type board struct {
	*process
	t      *testing.T
	url    string // of the page
	token  string // behind the # of it
	client *http.Client
}

// board starts holdfast board at an address.
func (s *site) board(at string, args ...string) *board {
	s.t.Helper()
	b := &board{t: s.t, process: s.command(at, append([]string{"board", "--every=100ms",
		"--listen=127.0.0.1:0"}, args...)...)}
	b.url, b.token, _ = strings.Cut(b.line(), "#token=")
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	b.client = &http.Client{Jar: jar, Timeout: guard, Transport: new(http.Transport)}
	s.t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// ask sends what the page sends. A body makes it a change.
func (b *board) ask(path string, body any) (code int, text []byte) {
	b.t.Helper()
	method, content := http.MethodGet, []byte(nil)
	var err error
	if body != nil {
		method = http.MethodPost
		if content, err = json.Marshal(body); err != nil {
			b.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path,
		bytes.NewReader(content))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Origin", strings.TrimSuffix(b.url, "/"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Holdfast-Board", "1")
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, text
}

// follows reads events until their text has all of it.
func (b *board) follows(want ...string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"events", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for all := ""; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.t.Fatalf("%v after %s; want %q", err, all, want)
		}
		if all += line; strings.Contains(all, "hunter2") {
			b.t.Fatalf("shows the password: %s", all)
		}
		missing := false
		for _, text := range want {
			missing = missing || !strings.Contains(all, text)
		}
		if !missing {
			return
		}
	}
}

// holder is who holds the lock, as the board shows it.
func (b *board) holder(name, prefix string) (h struct{ ID, Token, Who string }) {
	b.t.Helper()
	code, text := b.ask("lock?id="+url.QueryEscape(keyID(prefix+name)), nil)
	var lock struct {
		Holders []struct{ ID, Token, Who string }
	}
	if err := json.Unmarshal(text, &lock); err != nil || code != 200 || len(lock.Holders) != 1 {
		b.t.Fatalf("%d, %v: %s", code, err, text)
	}
	return lock.Holders[0]
}

// TestBoard: an operator without the right to write sees what the backend has, live, and nothing
// secret. A signal ends the board.
func TestBoard(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--label=backup", "nightly")
		s.wait("--label=next", "nightly")
		b := s.board(s.looks)
		want := []string{`"name":"nightly"`, `"who":"backup"`, `"waiting":1`}
		if s.name == "redlock" {
			want = append(want, `"state":"up"`, `"need":2`)
		}
		if s.name != "directory" {
			want = append(want, `"checked":`, `"findings":[`)
		}
		b.follows(want...)
		s.hold("report")
		b.follows(`"name":"report"`)
		if code, _ := b.ask("release", map[string]string{}); code != http.StatusForbidden {
			t.Errorf("a board that may only look frees: %d", code)
		}
		b.signal(syscall.SIGTERM)
		b.expectExit(143)
		if text := b.allStderr(); text != "" {
			t.Errorf("stderr is %q", text)
		}
	})
}

// TestBoardWhoseAddressIsNotTaken: a signal ends board although its stdout is blocked.
func TestBoardWhoseAddressIsNotTaken(t *testing.T) {
	t.Parallel()
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t)))
	cmd := exec.Command(holdfastPath, "board", "--listen="+at)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+locks(t))
	cmd.Stdout = fullPipe(t)
	p := startCommand(t, cmd)
	testserver.Eventually(t, "the board listens", func() error {
		c, err := net.Dial("tcp", at)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	p.signal(syscall.SIGTERM)
	p.expectExit(143)
}

// TestBoardFrees: with --allow-release and the token, a client frees the lock of exactly the
// acquisition that was shown, and stderr says so.
func TestBoardFrees(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--label=backup", "nightly")
		waiter := s.wait("--label=next", "nightly")
		b := s.board(s.url, "--allow-release")
		if len(b.token) < 20 {
			t.Fatalf("the token is %q", b.token)
		}
		if code, _ := b.ask("session", nil); code != http.StatusUnauthorized {
			t.Errorf("without the token: %d", code)
		}
		if code, text := b.ask("login", map[string]string{"token": b.token}); code != 204 {
			t.Fatalf("login: %d, %s", code, text)
		}
		h := b.holder("nightly", s.prefix)
		if (h.Token != "") != (s.name == "directory") || h.Who != "backup" {
			t.Errorf("held by %+v", h)
		}
		body := map[string]string{"id": keyID(s.prefix + "nightly"), "holder": h.ID,
			"token": h.Token}
		code, text := b.ask("release", body)
		if code != 200 || !strings.Contains(string(text), "freed nightly, which backup") {
			t.Errorf("%d, %s", code, text)
		}
		waiter.line()
		if code, text := b.ask("release", body); code != http.StatusConflict {
			t.Errorf("once more: %d, %s", code, text)
		}
		b.expectStderr(`holdfast: freed nightly, which backup .* asked for by the board from`)
		b.signal(syscall.SIGTERM)
		b.expectExit(143)
	})
}

// TestBoardOfASilentServer: a server that hangs is an error in time, and the board goes on when it
// answers again.
func TestBoardOfASilentServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	defer s.release()
	s.hold("nightly")
	b := s.board(s.looks, "--timeout=4s") // it also has that long to connect, on a busy machine
	b.follows(`"name":"nightly"`)
	s.servers[0].Freeze()
	b.follows(`"trouble":"no answer within 4s`)
	s.servers[0].Thaw()
	testserver.Eventually(t, "the board sees the lock again", func() error {
		_, text := b.ask("lock?id="+keyID(s.prefix+"nightly"), nil)
		if !bytes.Contains(text, []byte(`"held":1`)) {
			return fmt.Errorf("it says %s", text)
		}
		return nil
	})
	s.hold("report")
	b.follows(`"name":"report"`)
	b.signal(syscall.SIGTERM)
	b.expectExit(143)
}

// TestBoardTokenFile: the token of a file is needed, and is not printed.
func TestBoardTokenFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	const token = "a-token-of-a-file"
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := s.board(s.url, "--token-file="+path)
	if b.token != "" {
		t.Errorf("prints the token %q", b.token)
	}
	for text, want := range map[string]int{"another-token-of-a-file": 403, token: 204} {
		if code, _ := b.ask("login", map[string]string{"token": text}); code != want {
			t.Errorf("%s: %d", text, code)
		}
	}
	b.signal(syscall.SIGTERM)
	b.expectExit(143)
}

// keyID is how the page names a key.
func keyID(full string) string { return base64.RawURLEncoding.EncodeToString([]byte(full)) }

// busyPort returns an address that somebody listens on.
func busyPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
