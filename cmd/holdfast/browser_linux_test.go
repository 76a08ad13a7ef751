package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/chromiumtest"
)

var pictures = flag.String("pictures", "", "write pictures of the board to this `directory`")

// rowsScript are the rows that the page shows, each with its cells.
const rowsScript = `[...document.querySelectorAll('#rows tr')].map((r) =>
	[...r.querySelectorAll('td')].map((c) => c.innerText.trim()))`

// seen is a board in a browser.
type seen struct {
	*board
	page *chromiumtest.Page
}

// open opens the page of a board in a browser.
func (b *board) open() *seen {
	b.t.Helper()
	s := &seen{b, chromiumtest.Open(b.t)}
	s.page.Screen(1440, 1000, false, false)
	address := b.url
	if b.token != "" {
		address += "#token=" + b.token
	}
	s.page.Go(address)
	s.live()
	return s
}

func (s *seen) live() {
	s.t.Helper()
	s.page.Until("the page is live", `document.getElementById('live-text')?.innerText === 'Live'`)
}

// rows returns what the table shows.
func (s *seen) rows() (rows [][]string) {
	s.t.Helper()
	s.page.Run(rowsScript, &rows)
	return rows
}

// shows waits until the table has rows with these names, in this order.
func (s *seen) shows(names ...string) {
	s.t.Helper()
	want, err := json.Marshal(append([]string{}, names...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.page.Until("the table has "+string(want), fmt.Sprintf(
		`JSON.stringify((%s).map((r) => r[0].split('\n')[0])) === JSON.stringify(%s)`, rowsScript,
		want))
}

// click clicks on what a selector finds.
func (s *seen) click(selector string) {
	s.t.Helper()
	s.page.Until(selector+" is there", fmt.Sprintf(`document.querySelector(%q)`, selector))
	s.page.Run(fmt.Sprintf(`document.querySelector(%q).click()`, selector), nil)
}

// says waits until a part of the page has the text.
func (s *seen) says(selector, text string) {
	s.t.Helper()
	s.page.Until(fmt.Sprintf("%s says %q", selector, text), fmt.Sprintf(
		`document.querySelector(%q)?.innerText.includes(%q)`, selector, text))
}

// sound checks that no script has failed, and that the policy of the page was kept.
func (s *seen) sound() {
	s.t.Helper()
	if trouble := s.page.Trouble(); len(trouble) > 0 {
		s.t.Errorf("trouble on the page: %q", trouble)
	}
}

// TestBrowserShowsTheBackend: what the page shows is what the backend has, live; by keyboard it is
// sorted, searched and inspected; a lock is freed; and whatever a key or label is, it is text.
func TestBrowserShowsTheBackend(t *testing.T) {
	t.Parallel()
	const script = `<script>document.title='taken'</script><img/src=x/onerror=alert(1)>`
	s := newSite(t, "redis")
	defer s.release()
	s.hold("--label=backup", "nightly")
	s.wait("--label=next", "nightly")
	s.hold("--label="+script, script)
	b := s.board(s.url, "--allow-release").open()
	b.shows(script, "nightly")
	out, _ := s.ask(0, "ls", "--json")
	for _, k := range keys(t, out) {
		h := k.Holders[0]
		i := slices.IndexFunc(b.rows(), func(r []string) bool { return r[0] == k.Name })
		if i < 0 {
			t.Fatalf("%s is not shown", k.Name)
		}
		r := b.rows()[i]
		if r[1] != h.Label || r[2] != fmt.Sprintf("%s %d", h.Host, h.PID) ||
			r[5] != fmt.Sprint(k.Waiting) || !regexp.MustCompile(`^≥ \d`).MatchString(r[3]) {
			t.Errorf("%q is shown; the backend has %+v", r, k)
		}
	}
	var markup int
	b.page.Run(`document.querySelectorAll('img[onerror], main script').length`, &markup)
	if markup > 0 {
		t.Errorf("%d elements were made of other people's text", markup)
	}

	report := s.hold("--label=mia", "report")
	b.shows(script, "nightly", "report")
	s.end(report)
	b.shows(script, "nightly")
	b.page.Until("the time line has the hold that is over",
		`[...document.querySelectorAll('#past-body .hold title')].some((n) =>
			n.textContent.startsWith('report: mia ') && n.textContent.includes('until'))`)

	b.page.Press("/")
	b.page.Type("night")
	b.shows("nightly")
	b.page.Press("ArrowDown")
	b.page.Press("Enter")
	b.says("#detail", "backup")
	b.says("#detail .waiters", "next")
	b.page.Press("Escape")
	b.page.Until("the focus is where it was",
		`document.activeElement.innerText === 'nightly' && document.getElementById('detail').hidden`)
	b.click("#heads [data-column=waiting] button")
	b.page.Until("it is sorted", `document.querySelector('[data-column=waiting]').ariaSort ===
		'ascending'`)

	b.page.Press("Enter") // on the head of the column: the other way round
	b.page.Until("it is sorted the other way round",
		`document.querySelector('[data-column=waiting]').ariaSort === 'descending'`)
	b.click("#rows .name")
	b.click("#detail button.danger")
	b.says("#free-is", "nightly is held by backup")
	b.page.Press("Enter") // the focus is on the button that does nothing
	b.page.Until("nothing is done without a yes", `!document.getElementById('free').open`)
	b.click("#detail button.danger")
	b.click("#free-yes")
	b.says("#said", "freed nightly, which backup")
	b.says("#detail .holder", "next")
	if got := s.only("nightly"); got.Label != "next" {
		t.Errorf("held by %+v", got)
	}
	b.sound()
	b.accessible("light")
	b.page.Screen(390, 844, true, true)
	b.accessible("dark, on a phone")
}

// TestBrowserRecovers: while the server hangs, or the board is gone, the page says so and keeps what
// it has shown; and goes on by itself.
func TestBrowserRecovers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	defer s.release()
	s.hold("nightly")
	first := s.board(s.looks, "--timeout=500ms")
	b := first.open()
	b.shows("nightly")
	s.servers[0].Freeze()
	b.says("#alarm", "no answer within 500ms")
	b.says("#live", "as it was")
	b.shows("nightly")
	s.servers[0].Thaw()
	b.live()
	b.page.Until("the alarm is over", `document.getElementById('alarm').hidden`)
	b.signal(syscall.SIGTERM)
	b.expectExit(143)
	b.says("#live", "Not connected")
	b.shows("nightly")
	s.hold("report")
	at := strings.TrimSuffix(strings.TrimPrefix(first.url, "http://"), "/")
	s.board(s.looks, "--listen="+at)
	b.live()
	b.shows("nightly", "report")
	b.sound()
}

// TestBrowserAsksForTheToken: without the token of the address the page asks for it, and shows
// nothing before.
func TestBrowserAsksForTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	defer s.release()
	s.hold("nightly")
	started := s.board(s.url, "--allow-release")
	b := &seen{started, chromiumtest.Open(t)}
	b.page.Go(b.url)
	b.page.Until("the page asks for the token", `!document.getElementById('login').hidden`)
	b.page.Type("wrong")
	b.page.Press("Enter")
	b.says("#login-trouble", "not the token")
	b.page.Until("nothing is shown", `document.getElementById('board').hidden`)
	b.page.Type(b.token)
	b.page.Press("Enter")
	b.live()
	b.shows("nightly")
	b.page.Go(b.url + "#token=" + b.token)
	b.live()
	b.page.Until("the token is not in the address", `location.hash === ''`)
	b.sound()
	b.signal(syscall.SIGTERM)
	b.expectExit(143)
}

// TestBrowserManyLocks: of 10000 locks the page shows a part, finds one, and stays quick.
func TestBrowserManyLocks(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	defer s.release()
	const owner = "AAAAAAAAAAAAAAAAAAAAAAAA/h1/71/loader"
	var mset bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&mset, "redis.call('SET',KEYS[1]..'%05d',ARGV[1],'PX',3600000)\n", i)
		if i%500 == 499 {
			s.servers[0].Do(t, "EVAL", mset.String(), "1", s.prefix+"job/", owner)
			mset.Reset()
		}
	}
	b := s.board(s.looks, "--every=1s").open()
	b.says("#count", "10\u202f000 locks")
	b.says("#place", "1–100 of 10\u202f000")
	if rows := b.rows(); len(rows) != 100 || rows[0][0] != "job/00000" || rows[0][1] != "loader" {
		t.Errorf("%d rows, the first %q", len(rows), rows[:1])
	}
	b.click("#after")
	b.says("#place", "101–200")
	b.page.Press("/")
	b.page.Type("07777")
	b.shows("job/07777")
	var took float64
	b.page.Run(`(() => { const f = document.getElementById('find'), from = performance.now();
		for (const text of ['', 'job', '9', 'loader', '']) {
			f.value = text;
			f.dispatchEvent(new Event('input'));
		}
		return (performance.now() - from) / 5 })()`, &took)
	t.Logf("%.1f ms to find among 10000", took)
	var nodes int
	b.page.Run(`document.querySelectorAll('*').length`, &nodes)
	if nodes > 4000 {
		t.Errorf("the page has %d elements", nodes)
	}
	s.servers[0].Do(t, "DEL", s.prefix+"job/00000")
	b.says("#count", "9\u202f999 locks")
	b.sound()
}

// TestBrowserShowsADrill: a deadlock in red, a lock that was left behind, a server of the set that
// is down, and what doctor finds. With -pictures it draws the pictures of docs/board.md.
func TestBrowserShowsADrill(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redlock")
	defer s.release()
	for _, name := range []string{"invoices/2026-11", "search/reindex", "mail/digest",
		"cache/warm", "report/eu-west"} {
		s.hold("--label="+strings.Split(name, "/")[0], name)
	}
	s.wait("--label=mail-2", "mail/digest")
	s.wait("--label=mail-3", "mail/digest")
	one, two := s.taker("billing"), s.taker("reports")
	defer leave(one, two)
	one.take("accounts")
	two.take("ledger")
	one.want("ledger")
	two.want("accounts")
	s.wait("--label=audit", "ledger")
	for _, server := range s.servers {
		server.Do(t, "SET", s.prefix+"legacy/import", "worker-7:4711")
	}
	b := s.board(s.url, "--allow-release").open()
	b.says("#stuck", "Possible deadlock")
	b.page.Until("the deadlock is red",
		`document.querySelectorAll('#stuck .box.red').length === 2 &&
			document.querySelectorAll('#stuck .arrow.red').length === 2`)
	b.says("#rows", "deadlock")
	b.says("#rows", "no end")
	s.end(s.held[3])
	b.says("#past-count", "1 hold has ended")
	s.servers[2].Kill()
	b.says("#nodes", "2 of 3 are up")
	b.says("#nodes", "down")
	b.says("#found", "few-nodes")
	b.sound()
	b.draw("board", 1440, 1000, false)
	b.click(`#rows tr:has(.mark.bad) .name`)
	b.says("#detail", "billing")
	b.draw("lock", 1440, 1000, false)
	b.page.Press("Escape")
	b.draw("phone", 390, 844, true)
	b.accessible("in trouble")
}

// draw writes pictures, if they are wanted.
func (s *seen) draw(name string, width, height int, phone bool) {
	s.t.Helper()
	if *pictures == "" {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		s.page.Screen(width, height, phone, theme == "dark")
		s.page.Run(`document.getElementById('find').blur(); scrollTo(0, 0);
			dispatchEvent(new Event('resize'))`, nil)
		path := filepath.Join(*pictures, name+"-"+theme+".png")
		if err := os.WriteFile(path, s.page.Picture(), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.page.Screen(1440, 1000, false, false)
}

// accessible checks what a machine can: each control has a name, text has enough contrast in both
// themes, and nothing is wider than the window.
func (s *seen) accessible(when string) {
	s.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		var wrong []string
		s.page.Run(fmt.Sprintf(auditScript, theme), &wrong)
		for _, text := range wrong {
			s.t.Errorf("%s, theme %s: %s", when, theme, text)
		}
	}
	s.page.Run(`document.documentElement.dataset.theme = 'auto'`, nil)
}

const auditScript = `(() => {
	document.documentElement.dataset.theme = %q;
	const wrong = new Set();
	const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
	const rgba = (text) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = text;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const light = (c) => {
		const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 :
			((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (node) => {
		for (; node; node = node.parentElement) {
			const c = rgba(getComputedStyle(node).backgroundColor);
			if (c[3] === 255) return c;
		}
		return [255, 255, 255, 255];
	};
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let text = walk.nextNode(); text; text = walk.nextNode()) {
		const node = text.parentElement, style = getComputedStyle(node);
		if (!text.data.trim() || !node.checkVisibility() || node.closest('.unseen, title') ||
			node.disabled) continue;
		const inSVG = node.closest('svg');
		let back = behind(inSVG ? inSVG.parentElement : node);
		const box = inSVG && node.parentElement.querySelector(':scope > rect');
		if (box && getComputedStyle(box).fill !== 'none') back = rgba(getComputedStyle(box).fill);
		const a = light(rgba(inSVG ? style.fill : style.color)), b = light(back);
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) wrong.add('contrast ' + contrast.toFixed(1) + ' of "' +
			text.data.trim().slice(0, 30) + '" in ' + node.tagName + '.' + node.className);
	}
	for (const node of document.querySelectorAll('button, input, select, summary')) {
		const name = node.ariaLabel || node.innerText || (node.labels && node.labels[0] &&
			node.labels[0].innerText);
		if (node.checkVisibility() && !name) wrong.add('no name: ' + node.outerHTML.slice(0, 80));
	}
	const wide = document.documentElement.scrollWidth - innerWidth;
	if (wide > 0) wrong.add('the page is ' + wide + ' pixels too wide');
	return [...wrong];
})()`
