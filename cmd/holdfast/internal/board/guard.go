package board

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// policy lets the page load its own files and nothing else. It forbids scripts and styles within
// markup, and the page in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

const (
	// ownHeader is sent with each change. Another site cannot set it without being allowed to.
	ownHeader = "Holdfast-Board"

	// bodyBytes is how long the body of a request may be.
	bodyBytes = 8 << 10
)

// ServeHTTP answers a request. It refuses requests of other sites, and those that call the server
// by a name that is not its own. The page of another site does that after its own name was made to
// point here.
func (b *Board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTime))
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case !b.isCalled(r.Host):
		refuse(w, http.StatusMisdirectedRequest, "the board does not know itself by that name; "+
			"call it by its address, or start it with --host")
	case site != "" && site != "same-origin" && !isVisit(r):
		refuse(w, http.StatusForbidden, "another site may not ask this")
	default:
		b.mux.ServeHTTP(w, r)
	}
}

// isVisit reports whether somebody comes to the page: by a link from elsewhere, for example. The
// page itself has nothing that is secret.
func isVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.URL.Path == "/"
}

// isCalled reports whether a request may call the board by that name. An IP address is allowed,
// because it cannot be made to point elsewhere.
func (b *Board) isCalled(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(name)
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || name == "localhost" || slices.Contains(b.Hosts, name)
}

// change answers a request that changes something, if the page itself has sent it. The body is
// read into what f takes.
func change[T any](f func(http.ResponseWriter, *http.Request, T)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		origin, err := url.Parse(r.Header.Get("Origin"))
		var body T
		switch {
		case r.Header.Get(ownHeader) == "":
			refuse(w, http.StatusForbidden, "the header "+ownHeader+" is missing")
			return
		case err != nil || !strings.EqualFold(origin.Host, r.Host):
			refuse(w, http.StatusForbidden, "only the page itself may ask this")
			return
		case r.Header.Get("Content-Type") != "application/json":
			refuse(w, http.StatusUnsupportedMediaType, "the body must be JSON")
			return
		}
		// The whole body is read: what is left would be read before the answer is sent, however
		// long that takes.
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err != nil || d.Decode(&body) != nil || d.More() {
			refuse(w, http.StatusBadRequest, "the body is not what was expected")
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the whole request has come
		f(w, r, body)
	}
}

// known answers a request of somebody who has shown the token, if there is one.
func (b *Board) known(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !b.knows(r) {
			refuse(w, http.StatusUnauthorized, "the token is needed")
			return
		}
		f(w, r)
	}
}

// knows reports whether the request has the cookie that login has set.
func (b *Board) knows(r *http.Request) bool {
	if b.Token == "" {
		return true
	}
	want := []byte(b.pass())
	for _, c := range r.CookiesNamed(b.cookieName()) {
		if hmac.Equal([]byte(c.Value), want) {
			return true
		}
	}
	return false
}

// cookieName depends on the token. A browser keeps one cookie of a name for all ports of a host,
// and several ports may have a board.
func (b *Board) cookieName() string { return "holdfast-board-" + b.mac("holdfast board name")[:16] }

// pass is the content of the cookie of a viewer that knows the token. It is valid as long as the
// token.
func (b *Board) pass() string { return b.mac("holdfast board") }

// mac returns a code for a text, which can be computed only with the token.
func (b *Board) mac(text string) string {
	mac := hmac.New(sha256.New, []byte(b.Token))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// login sets the cookie for a viewer that knows the token.
func (b *Board) login(w http.ResponseWriter, r *http.Request, body struct {
	Token string `json:"token"`
}) {
	given, want := sha256.Sum256([]byte(body.Token)), sha256.Sum256([]byte(b.Token))
	if b.Token == "" || !hmac.Equal(given[:], want[:]) {
		refuse(w, http.StatusForbidden, "that is not the token")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: b.cookieName(), Value: b.pass(), Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.WriteHeader(http.StatusNoContent)
}

// refuse answers with an error, in printable text.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
