//go:build unix

// Package chromiumtest starts real browsers without a window for tests, which drive a page in them:
// see package testserver. It speaks the browser's own protocol over two pipes, so it needs no
// library.
package chromiumtest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Page is a page of a browser. Its methods end the test if the browser fails, and are called by one
// goroutine.
type Page struct {
	t       testing.TB
	to      *os.File
	session string
	last    int
	dead    chan struct{} // closed when the browser says nothing more

	mu      sync.Mutex
	waits   map[int]chan message
	trouble []string
}

// message is what goes over the pipes.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// programs are the names that Debian and others have for the browser.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// flags leave out what a test has no use for. As root the browser has no sandbox.
var flags = []string{"--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
	"--disable-background-networking", "--disable-component-update", "--disable-extensions",
	"--disable-default-apps", "--disable-sync", "--mute-audio", "--hide-scrollbars",
	"--no-default-browser-check", "--disable-dev-shm-usage", "--password-store=basic",
	"--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en-US"}

// Open starts a browser, which ends with the test, and opens an empty page in it.
func Open(t testing.TB) *Page {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "holdfast-browser")
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(flags), "--user-data-dir="+filepath.Join(dir, "profile"))
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.Command(find(t), append(args, "about:blank")...)
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := testserver.StartProcess(cmd); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	p := &Page{t: t, to: to, dead: make(chan struct{}), waits: make(map[int]chan message)}
	go p.listen(from)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with all that it has started
		_ = cmd.Wait()
		to.Close()
		from.Close()
		<-p.dead
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("the browser says: %.2000s", complaints.String())
		}
	})
	p.attach()
	return p
}

func find(t testing.TB) string {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("none of %q is installed; scripts/install.sh test installs it", programs)
	return ""
}

// attach opens a page, and has the browser tell what goes wrong on it.
func (p *Page) attach() {
	p.t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	p.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true},
		&attached)
	p.session = attached.Session
	for _, method := range []string{"Page.enable", "Runtime.enable", "Log.enable",
		"Network.enable"} {
		p.call(method, nil, nil)
	}
}

// listen reads what the browser says.
func (p *Page) listen(from *os.File) {
	defer close(p.dead)
	for r := bufio.NewReaderSize(from, 1<<20); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			message
			Params struct {
				Entry struct {
					Level, Source, Text, URL string
				}
				Exception struct {
					Text      string
					Exception struct{ Description string }
				} `json:"exceptionDetails"`
			} `json:"params"`
		}
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			continue
		}
		p.mu.Lock()
		wait := p.waits[m.ID]
		delete(p.waits, m.ID)
		switch m.Method {
		case "Runtime.exceptionThrown":
			e := m.Params.Exception
			p.trouble = append(p.trouble, e.Text+" "+e.Exception.Description)
		case "Log.entryAdded":
			// That a request fails is seen on the page.
			if e := m.Params.Entry; e.Level == "error" && e.Source != "network" {
				p.trouble = append(p.trouble, e.Source+": "+e.Text+" "+e.URL)
			}
		}
		p.mu.Unlock()
		if wait != nil {
			wait <- m.message
		}
	}
}

// call calls a method of the browser.
func (p *Page) call(method string, params, result any) {
	p.t.Helper()
	if err := p.try(method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

func (p *Page) try(method string, params, result any) error {
	p.last++
	wait := make(chan message, 1)
	p.mu.Lock()
	p.waits[p.last] = wait
	p.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	text, err := json.Marshal(message{ID: p.last, Session: p.session, Method: method,
		Params: params})
	if err != nil {
		return err
	}
	if _, err := p.to.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m := <-wait:
		if m.Error != nil {
			return errors.New(m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-p.dead:
		return errors.New("the browser has ended")
	case <-time.After(testserver.Patience):
		return fmt.Errorf("no answer within %v", testserver.Patience)
	}
}

// Trouble returns the errors of scripts and the violations of policies so far, and forgets them.
func (p *Page) Trouble() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.trouble
	p.trouble = nil
	return all
}

// Go goes to an address.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url}, nil)
}

// Run runs a script, which may be a promise, and reads its value into result, which may be nil.
func (p *Page) Run(script string, result any) {
	p.t.Helper()
	if err := p.run(script, result); err != nil {
		p.t.Fatalf("%v, in %s", err, script)
	}
}

func (p *Page) run(script string, result any) error {
	var value struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.try("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true,
		"awaitPromise": true, "userGesture": true}, &value)
	switch {
	case err != nil:
		return err
	case value.Exception != nil:
		return errors.New(value.Exception.Text + " " + value.Exception.Exception.Description)
	case result == nil:
		return nil
	case value.Result.Value == nil:
		return errors.New("it has no value")
	}
	return json.Unmarshal(value.Result.Value, result)
}

// Until waits until a script says true. The page may be on its way to another address meanwhile.
func (p *Page) Until(what, script string) {
	p.t.Helper()
	deadline := time.Now().Add(testserver.Patience)
	for {
		var is bool
		err := p.run("Boolean("+script+")", &is)
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			var text string
			_ = p.run("document.body.innerText", &text)
			p.t.Fatalf("not so: %s (%v); the page says %.3000s; trouble: %q", what, err, text,
				p.Trouble())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Press presses a key, as it is called in a keyboard event.
func (p *Page) Press(key string) {
	p.t.Helper()
	params := map[string]any{"type": "keyDown", "key": key}
	if text, ok := map[string]string{"Enter": "\r", "Tab": "\t"}[key]; ok {
		params["text"] = text
	} else if len(key) == 1 {
		params["text"] = key
	}
	if code := keyCodes[key]; code != 0 {
		params["windowsVirtualKeyCode"] = code
	}
	p.call("Input.dispatchKeyEvent", params, nil)
	params["type"] = "keyUp"
	delete(params, "text")
	p.call("Input.dispatchKeyEvent", params, nil)
}

var keyCodes = map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}

// Type types a text where the focus is.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// Screen sets the size of the window in pixels, whether it is that of a phone, and whether its user
// wants it dark.
func (p *Page) Screen(width, height int, phone, dark bool) {
	p.t.Helper()
	scale := 1
	if phone {
		scale = 2
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": scale, "mobile": phone}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Picture returns what the window shows, as PNG.
func (p *Page) Picture() []byte {
	p.t.Helper()
	var picture struct {
		Data string `json:"data"`
	}
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}
