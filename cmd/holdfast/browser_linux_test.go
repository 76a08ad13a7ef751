//go:build browser

package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// browser is a headless Chromium with one page. Commands go to it over pipes, in the protocol of
// its developer tools: a JSON object for each command, with a NUL behind it.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
}

// startBrowser starts Chromium, which "make board-test" installs.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, itsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Root, as in CI, has to do without the sandbox; the page is our own.
	cmd := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, itsOut} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	itsOut.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		to.Close()
		from.Close()
	})
	if err := from.SetReadDeadline(time.Now().Add(2 * guard)); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&session)
	b.session = session.SessionID
	return b
}

// call gives a command and waits for its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params,
		"sessionId": b.session})
	if err != nil {
		b.t.Fatal(err)
	}
	if b.session == "" {
		text = []byte(strings.Replace(string(text), `,"sessionId":""`, "", 1))
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		line, err := b.from.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(line[:len(line)-1], &answer); err != nil {
			b.t.Fatal(err)
		}
		switch {
		case answer.ID != b.last: // an event
		case answer.Error != nil:
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		case result == nil:
			return
		default:
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
}

// eval returns what an expression is on the page, as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true,
		"awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails.Text)
	}
	return fmt.Sprint(answer.Result.Value)
}

// until waits until an expression is true on the page.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	testserver.Eventually(b.t, what, func() error {
		if b.eval("!!("+expression+")") == "true" {
			return nil
		}
		return errors.New(b.eval("document.body.innerText.slice(0, 2000)"))
	})
}

// open goes to an address.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// size has the page be as large as a window or a phone.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// scheme has the browser ask for dark or light.
func (b *browser) scheme(name string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// picture saves what the page looks like, if somebody wants to see it.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("HOLDFAST_PICTURES")
	if dir == "" {
		return
	}
	var answer struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	if err := os.WriteFile(dir+"/"+name+".png", answer.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// row is the text of the row of a lock in the table, empty if there is none.
const row = `[...document.querySelectorAll('#rows tr')].map((r) => r.innerText)` +
	`.find((text) => text.includes(%q)) || ''`

// TestBoardInABrowser: a page in Chromium shows what the backend has, live; it goes on when the
// server was away; it frees a lock; and what others have written into names and labels is text.
func TestBoardInABrowser(t *testing.T) {
	s := newSite(t, "redis")
	defer s.release()
	s.hold("--label=backup", "nightly")
	s.wait("--label=next", "nightly")
	const evil = "<script>document.title='run'</script><img src=x onerror=document.title='run'>"
	s.hold("--label="+evil, evil)
	board := s.board(s.url, "--allow-release", "--timeout=4s")
	page := startBrowser(t)
	page.size(1280, 900)
	page.scheme("light")
	page.open(board.url + "#token=" + board.token)
	page.until("the lock is shown with its holder",
		fmt.Sprintf(row, "nightly")+".includes('backup')")
	page.until("the label of others is shown as it is", fmt.Sprintf(row, "onerror"))
	if got := page.eval("document.title === 'run' || " +
		"document.querySelector('#rows script, #rows img')"); got != "<nil>" {
		t.Errorf("what others have written is no text: %s", got)
	}
	if got := page.eval("location.hash + document.cookie"); got != "" {
		t.Errorf("the token is still in sight of a script: %q", got)
	}
	s.hold("report")
	page.until("a new lock is shown", fmt.Sprintf(row, "report"))
	page.picture("light")
	page.scheme("dark")
	page.picture("dark")
	const background = "getComputedStyle(document.documentElement).backgroundColor"
	dark := page.eval(background)
	page.scheme("light")
	if light := page.eval(background); dark == light {
		t.Errorf("light and dark are both %s", dark)
	}

	page.size(390, 844)
	if got := page.eval("document.documentElement.scrollWidth"); got != "390" {
		t.Errorf("on a phone of 390 dots the page takes %s", got)
	}
	page.picture("phone")
	page.size(1280, 900)

	s.servers[0].Freeze()
	page.until("the page says that the server is silent",
		"document.body.innerText.includes('no answer within 4s')")
	page.picture("silent")
	s.servers[0].Thaw()
	page.until("it goes on", "document.getElementById('alarm').hidden")

	page.eval(`[...document.querySelectorAll('#rows button, #rows a')]` +
		`.find((n) => n.innerText === 'nightly').click()`)
	page.until("the lock is described",
		"document.getElementById('detail-body').innerText.includes('next')")
	page.eval(`[...document.querySelectorAll('#detail-body button')]` +
		`.find((n) => /free/i.test(n.innerText)).click()`)
	page.until("it asks", "document.getElementById('free').open")
	page.picture("free")
	page.eval("document.getElementById('free-yes').click()")
	page.until("the next one has the lock", fmt.Sprintf(row, "nightly")+".includes('next')")
	board.expectStderr(`holdfast: freed nightly, which backup .* asked for by the board from`)
}

// TestBoardOfManyLocks: a page is readable with ten thousand locks: a hundred of them at a time,
// and the field finds one of all.
func TestBoardOfManyLocks(t *testing.T) {
	s := newSite(t, "redis")
	s.servers[0].Do(t, "EVAL", `for i = 1, tonumber(ARGV[1]) do
		redis.call('SET', string.format('lock:invoice/%05d', i), 'v', 'PX', 3600000) end`, "0", "10000")
	board := s.board(s.looks)
	page := startBrowser(t)
	page.size(1280, 900)
	page.open(board.url)
	page.until("the locks are shown", "document.querySelectorAll('#rows tr').length === 100")
	page.picture("many")
	page.eval(`(() => { const f = document.getElementById('find'); f.value = 'invoice/09876';
		f.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	page.until("one is found", "document.querySelectorAll('#rows tr').length === 1 && "+
		fmt.Sprintf(row, "invoice/09876"))
}
