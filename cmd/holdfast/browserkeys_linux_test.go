//go:build browser

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// press presses a key, as somebody without a mouse does.
func (b *browser) press(key string) {
	b.t.Helper()
	code, text := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40,
		"/": 191}[key], ""
	switch key {
	case "Enter":
		text = "\r"
	case " ", "/":
		text = key
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "text": text,
			"windowsVirtualKeyCode": code}, nil)
		text = ""
	}
}

// focused is what has the focus: its id, its name for screen readers, or its text.
const focused = `(() => { const a = document.activeElement;
	return a.id || a.getAttribute('aria-label') || a.innerText.trim(); })()`

// tabs presses Tab until the page is left, and returns all that had the focus in turn. What shows
// no focus, or is not in sight, is an error.
func (b *browser) tabs() (all []string) {
	b.t.Helper()
	b.eval(`document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')`)
	for range 200 {
		b.press("Tab")
		if b.eval("document.activeElement === document.body") == "true" {
			return all
		}
		name := b.eval(focused)
		all = append(all, name)
		if got := b.eval(`(() => { const a = document.activeElement, s = getComputedStyle(a),
			r = a.getBoundingClientRect();
			return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && r.width > 0 &&
				r.right > 0 && r.left < innerWidth && r.bottom > 0 && r.top < innerHeight;
			})()`); got != "true" {
			b.t.Errorf("nobody sees that %q has the focus", name)
		}
	}
	b.t.Fatalf("Tab never leaves the page: %q", all)
	return nil
}

// controls are all things that can be used and are in sight, in the order of the document.
const controls = `JSON.stringify([...document.querySelectorAll(
	'a[href], button, input, select, summary, [tabindex="0"]')].filter((n) =>
	!n.disabled && n.checkVisibility()).map((a) =>
	a.id || a.getAttribute('aria-label') || a.innerText.trim()))`

// axe lets axe-core, which knows the rules of WCAG, look at the page. No rule may be broken
// seriously.
func (b *browser) axe(library, what string) {
	b.t.Helper()
	b.eval("window.axe ? 0 : (() => { " + library + "\n; window.axe = axe; })()")
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	text := b.eval(`axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa',
		'wcag22aa', 'best-practice'] }).then((r) => JSON.stringify(r.violations))`)
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatal(err)
	}
	for _, f := range found {
		b.t.Errorf("%s: %s (%s): %s: %s %s", what, f.ID, f.Impact, f.Help, f.Nodes[0].HTML,
			f.Nodes[0].FailureSummary)
	}
}

// axeCore installs the library, and returns its source.
func axeCore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join("internal/board/axe", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline",
		"--ignore-scripts", "--fetch-retries=5")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestBoardInABrowserForAll: the board can be used with keys alone, and with a screen reader, dark
// and light, on a phone too, and however long the names are that others have given.
func TestBoardInABrowserForAll(t *testing.T) {
	library := axeCore(t)
	s := newSite(t, "redis")
	defer s.release()
	s.hold("--label=backup", "nightly")
	s.wait("--label=next", "nightly")
	long := "invoice/" + strings.Repeat("0123456789abcdef", 20)
	s.hold("--label="+strings.Repeat("Donaudampfschiff", 8), long)
	s.servers[0].Do(t, "SET", "lock:theirs", strings.Repeat("wide", 80), "PX", "3600000")
	s.servers[0].Do(t, "SET", "lock:left", "v")
	one, two := s.taker("one"), s.taker("two")
	one.take("accounts")
	two.take("ledger")
	one.want("ledger")
	two.want("accounts")
	board := s.board(s.url, "--allow-release")
	page := startBrowser(t)
	page.size(1280, 900)
	page.scheme("light")
	page.open(board.url)
	page.until("it asks for the token", "document.getElementById('login')?.hidden === false")
	page.axe(library, "login")
	page.picture("login")
	page.open(board.url + "#token=" + board.token)
	page.until("the deadlock is shown", "document.querySelector('.deadlock')")
	page.until("the servers were examined", "document.querySelector('.findings li')")

	for _, scheme := range []string{"light", "dark"} {
		page.scheme(scheme)
		for what, width := range map[string]int{"screen": 1280, "phone": 390} {
			what = scheme + " " + what
			page.size(width, 844)
			page.eval("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
			page.axe(library, what)
			if got := page.eval("document.documentElement.scrollWidth - " +
				"document.documentElement.clientWidth"); got != "0" {
				t.Errorf("%s: the page is %s dots wider than the window", what, got)
			}
			page.hasTable(what)
			page.whole("all-" + strings.ReplaceAll(what, " ", "-"))
		}
	}
	page.scheme("light")
	page.size(1280, 900)

	page.tabsInOrder("the locks")
	page.eval("document.getElementById('find').blur()")
	page.press("/")
	page.has("find")
	page.call("Input.insertText", map[string]any{"text": "nightly"}, nil)
	page.until("what was found is said", "document.getElementById('say').innerText === '1 of 6 locks'")
	page.press("ArrowDown")
	page.has("nightly")
	for _, key := range []string{" ", "Enter"} {
		page.press(key)
		page.has("detail-head")
		page.until("the lock is described",
			"document.getElementById('detail-body').innerText.includes('next')")
		page.axe(library, "a lock")
		page.press("Escape")
		page.has("nightly")
	}
	page.press("Enter")
	page.until("the lock is described",
		"document.getElementById('detail-body').innerText.includes('next')")
	s.hold("report")
	page.until("a new lock is counted", "document.getElementById('count').innerText.includes('7')")
	page.has("detail-head") // events leave the focus where it is
	page.press("Tab")
	page.has("close")
	page.press("Tab")
	page.has("Free this lock…")
	page.picture("keys")
	page.press("Enter")
	page.has("free-no")
	page.axe(library, "the question")
	page.press("Tab")
	page.has("free-yes")
	page.press("Tab")
	if got := page.eval("document.activeElement === document.body || " +
		"document.getElementById('free').contains(document.activeElement)"); got != "true" {
		t.Errorf("the question lets go of the focus: it is at %q", page.eval(focused))
	}
	page.press("Escape")
	page.has("Free this lock…")
	page.press(" ")
	page.press("Tab")
	page.press("Enter")
	page.until("it is said", "document.getElementById('said').innerText.includes('freed')")
	page.until("the next one has the lock", fmt.Sprintf(row, "nightly")+".includes('next')")
	page.until("the next one is described",
		"document.querySelector('#detail-body .who').innerText.includes('next')")
	page.has("detail-head")
	page.axe(library, "a lock that was freed")
	page.tabsInOrder("a lock")
	page.size(390, 844)
	page.whole("all-detail-phone")
}

// has waits until something has the focus.
func (b *browser) has(name string) {
	b.t.Helper()
	b.until(name+" has the focus", fmt.Sprintf("%s === %q", focused, name))
}

// tabsInOrder checks that Tab goes through all that can be used, in the order of reading.
func (b *browser) tabsInOrder(what string) {
	b.t.Helper()
	var want []string
	if err := json.Unmarshal([]byte(b.eval(controls)), &want); err != nil {
		b.t.Fatal(err)
	}
	got := b.tabs()
	for _, names := range [][]string{got, want} {
		for i := range names {
			names[i] = times.ReplaceAllString(names[i], "0") // they go on meanwhile
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: Tab goes to\n%q\nand there are\n%q", what, got, want)
	}
}

var times = regexp.MustCompile(`[0-9][0-9.]*`)

// hasTable checks that a screen reader finds the locks as a table, and a name for all that can be
// used.
func (b *browser) hasTable(what string) {
	b.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	count := map[any]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		count[n.Role.Value]++
		switch n.Role.Value {
		case "table", "button", "link", "combobox", "searchbox", "textbox", "image", "main",
			"navigation":
			if n.Name.Value == "" && n.Role.Value != "main" {
				b.t.Errorf("%s: a %s has no name", what, n.Role.Value)
			}
		}
	}
	if count["table"] != 1 || count["columnheader"] != 6 || count["row"] != 7 {
		b.t.Errorf("%s: a screen reader finds %v; want a table with 6 columns and 7 rows", what,
			count)
	}
}

// whole saves what the page looks like from top to bottom.
func (b *browser) whole(name string) {
	b.t.Helper()
	dir := os.Getenv("HOLDFAST_PICTURES")
	if dir == "" {
		return
	}
	var answer struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png",
		"captureBeyondViewport": true}, &answer)
	if err := os.WriteFile(dir+"/"+name+".png", answer.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
