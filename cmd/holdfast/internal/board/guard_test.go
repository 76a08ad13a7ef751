package board_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
)

// known adds the cookie of a client that knows the token.
func known(r *http.Request) {
	mac := func(text string) string {
		mac := hmac.New(sha256.New, []byte(token))
		mac.Write([]byte(text))
		return hex.EncodeToString(mac.Sum(nil))
	}
	r.AddCookie(&http.Cookie{Name: "holdfast-board-" + mac("holdfast board name")[:16],
		Value: mac("holdfast board")})
}

// with changes a request in several ways.
func with(all ...func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) {
		for _, f := range all {
			f(r)
		}
	}
}

// TestPolicy: each answer tells the browser to run nothing but the page's own files.
func TestPolicy(t *testing.T) {
	s := newSite(t, nil)
	for _, path := range []string{"/", "/board.js", "/board.css", "/icon.svg", "/session",
		"/lock?id=x", "/nothing"} {
		code, _, h := s.askAll(http.MethodGet, path, "")
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'",
			"style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q has no %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "data:") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
		if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Content-Type") == "" &&
			code != 204 {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// TestPageIsItsOwn: the files of the page are served, have no script or style within markup, make
// no markup of text, and name no other place.
func TestPageIsItsOwn(t *testing.T) {
	s := newSite(t, nil)
	paths, err := filepath.Glob("page/*")
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*>\s*[^<\s]|>)|\sstyle=|\son\w+=|javascript:`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|` +
		`\beval\b|new Function|setTimeout\(['"]|DOMParser|createContextualFragment|srcdoc`)
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z]`)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := "/" + filepath.Base(path)
		if name == "/index.html" {
			name = "/"
		}
		code, text := s.ask(http.MethodGet, name, "")
		if code != 200 || text != string(raw) {
			t.Errorf("%s is served as %d with %d bytes of %d", path, code, len(text), len(raw))
		}
		text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
		for what, re := range map[string]*regexp.Regexp{"has a script or style in it": inline,
			"makes markup": markup, "names another place": elsewhere} {
			if found := re.FindString(text); found != "" {
				t.Errorf("%s %s: %s", path, what, found)
			}
		}
	}
}

// TestHost: the board is called by an address, by localhost or by a name that it was given. A name
// that was made to point here is refused.
func TestHost(t *testing.T) {
	s := newSite(t, func(o *board.Options) { o.Hosts = []string{"locks.example.com"} })
	for host, want := range map[string]int{
		"127.0.0.1:8420": 204, "127.0.0.1": 204, "[::1]:9": 204, "[::1]": 204,
		"localhost": 204, "LOCALHOST:1": 204, "10.0.0.7:8420": 204,
		"locks.example.com": 204, "Locks.Example.com:443": 204,
		"evil.example": 421, "evil.example:8420": 421, "localhost.evil.example": 421,
		"127.0.0.1.evil.example:8420": 421, "": 421, "127.1": 421, "x.locks.example.com": 421,
	} {
		code, text := s.ask(http.MethodGet, "/session", "", func(r *http.Request) { r.Host = host })
		if code != want {
			t.Errorf("%q: %d, %s; want %d", host, code, text, want)
		}
	}
}

// TestOtherSites: another site gets nothing, and may only send somebody to the page.
func TestOtherSites(t *testing.T) {
	s := newSite(t, nil)
	for _, test := range []struct {
		path, site, mode string
		want             int
	}{
		{"/session", "same-origin", "cors", 204},
		{"/session", "", "", 204},
		{"/session", "cross-site", "cors", 403},
		{"/events", "cross-site", "no-cors", 403},
		{"/lock?id=" + idOf("x"), "same-site", "no-cors", 403},
		{"/", "cross-site", "navigate", 200},
		{"/", "none", "navigate", 200},
		{"/", "cross-site", "no-cors", 403},
		{"/board.js", "cross-site", "no-cors", 403},
		{"/lock?id=" + idOf("x"), "cross-site", "navigate", 403},
	} {
		code, _ := s.ask(http.MethodGet, test.path, "", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", test.site)
			r.Header.Set("Sec-Fetch-Mode", test.mode)
		})
		if code != test.want {
			t.Errorf("%+v: %d", test, code)
		}
	}
}

// TestToken: a client without the token sees nothing. A client that shows it gets a cookie that no
// script and no other site can read.
func TestToken(t *testing.T) {
	s := newSite(t, func(o *board.Options) { o.Token = token })
	for _, path := range []string{"/session", "/events", "/lock?id=" + idOf("x")} {
		if code, text := s.ask(http.MethodGet, path, ""); code != 401 {
			t.Errorf("%s without the token: %d, %s", path, code, text)
		}
	}
	if code, text := s.ask(http.MethodGet, "/", ""); code != 200 || strings.Contains(text, token) {
		t.Errorf("the page: %d", code)
	}
	for _, wrong := range []string{"", token[1:], token + "x", strings.ToUpper(token)} {
		code, _, h := s.askAll(http.MethodPost, "/login", fmt.Sprintf(`{"token":%q}`, wrong))
		if code != 403 || h.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d, %v", wrong, code, h)
		}
	}
	code, _, h := s.askAll(http.MethodPost, "/login", `{"token":"`+token+`"}`)
	cookie := h.Get("Set-Cookie")
	if code != 204 || !strings.Contains(cookie, "; HttpOnly") || strings.Contains(cookie, token) ||
		!strings.Contains(cookie, "; SameSite=Strict") {
		t.Fatalf("%d, %q", code, cookie)
	}
	shows := func(r *http.Request) {
		pair := strings.SplitN(cookie, ";", 2)[0]
		name, _, _ := strings.Cut(pair, "=")
		r.Header.Set("Cookie", name+"=other; "+pair)
	}
	if code, text := s.ask(http.MethodGet, "/session", "", shows); code != 204 {
		t.Errorf("with the cookie: %d, %s", code, text)
	}
	other := newSite(t, func(o *board.Options) { o.Token = token + "x" })
	if code, _ := other.ask(http.MethodGet, "/session", "", shows); code != 401 {
		t.Errorf("with the cookie of another token: %d", code)
	}
	open := newSite(t, nil)
	if code, _ := open.ask(http.MethodPost, "/login", `{"token":""}`); code != 403 {
		t.Errorf("without a token there is no login: %d", code)
	}
}

// TestTwoBoardsOfAHost: a browser has one cookie of a name for all ports of a host. A user who logs
// in at another board stays logged in here.
func TestTwoBoardsOfAHost(t *testing.T) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	host := &url.URL{Scheme: "http", Host: "127.0.0.1:8420", Path: "/"}
	sites := make(map[string]*site)
	for _, its := range []string{token, token + "x"} {
		s := newSite(t, func(o *board.Options) { o.Token = its })
		sites[its] = s
		code, _, h := s.askAll(http.MethodPost, "/login", `{"token":"`+its+`"}`)
		if code != 204 {
			t.Fatal(code)
		}
		cookies, err := http.ParseSetCookie(h.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		jar.SetCookies(host, []*http.Cookie{cookies})
	}
	for its, s := range sites {
		code, text := s.ask(http.MethodGet, "/session", "", func(r *http.Request) {
			for _, c := range jar.Cookies(host) {
				r.AddCookie(c)
			}
		})
		if code != 204 {
			t.Errorf("the board with the token %s: %d, %s", its, code, text)
		}
	}
}
