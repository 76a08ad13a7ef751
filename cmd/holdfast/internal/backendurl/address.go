// Package backendurl turns the address of a backend, as the command takes it from --on and HOLDFAST_URL, into a
// backend.
//
// An address may carry a secret: a password in front of the host, or a parameter. Neither an error nor a String of
// this package shows one: what comes before an @ is never shown, nor is the value of a parameter.
package backendurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Address is an address that can be opened.
type Address struct {
	shown  string
	prefix string
	open   func(ctx context.Context) (driver.Backend, error)
}

// String returns the address without anything that may be secret: no user, no password, no parameters.
func (a *Address) String() string { return a.shown }

// Prefix returns what is put before every name to make a key: the parameter prefix, or the scheme's default.
func (a *Address) Prefix() string { return a.prefix }

// Open opens the backend, which the caller closes. It fails if the backend cannot be used as it is: a directory
// that is missing or not writable, a server that does not answer. ctx bounds the opening only.
func (a *Address) Open(ctx context.Context) (driver.Backend, error) { return a.open(ctx) }

// parts is an address taken apart. It is done here and not by net/url, which refuses several hosts with ports,
// and whose errors repeat the address.
type parts struct {
	scheme   string            // lower case
	slashes  bool              // an authority was given, empty or not: "//"
	userinfo string            // what is before the last @ of the authority: secret
	hasUser  bool              // there is such an @
	hosts    string            // the rest of the authority
	path     string            // as written, with its leading slash if there is one
	lateAt   bool              // there is an @ after the authority
	params   map[string]string // without a "=" the name ends with noValue
}

// Parse reads an address. It opens nothing and asks nobody. An error says what is wrong and what is allowed; it
// repeats neither the user, nor the password, nor the value of a parameter.
func Parse(raw string) (*Address, error) {
	p, err := split(raw)
	if err != nil {
		return nil, err
	}
	s, err := lookup(p)
	if err != nil {
		return nil, err
	}
	// A password with one of / ? # in it ends the authority early, and its rest would be shown as a path or as
	// the name of a parameter.
	if p.lateAt && !s.noServer {
		return nil, fmt.Errorf("there is an @ after the host; in a user or password write / ? # @ as %%2F %%3F %%23 %%40")
	}
	for name := range p.params {
		if _, ok := s.params[name]; !ok {
			return nil, fmt.Errorf("unknown parameter%s; %s: takes %s", shownName(name), p.scheme, strings.Join(s.paramNames(), ", "))
		}
	}
	a := &Address{prefix: s.prefix}
	if prefix, ok := p.params["prefix"]; ok {
		if len(prefix) >= driver.MaxKeyLen {
			return nil, fmt.Errorf("parameter prefix has %d bytes; prefix and name together may have %d", len(prefix), driver.MaxKeyLen)
		}
		a.prefix = prefix
	}
	a.shown, a.open, err = s.parse(p)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func split(raw string) (parts, error) {
	var p parts
	scheme, rest, found := strings.Cut(raw, ":")
	if !found || !isScheme(scheme) {
		// What there is may be a password that came first: it is not shown.
		return p, fmt.Errorf("no scheme; an address begins with one of %s", strings.Join(forms(), ", "))
	}
	p.scheme = strings.ToLower(scheme)
	if i := strings.IndexFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return p, fmt.Errorf("control character at byte %d; write it as a %% and two hex digits", i)
	}
	if strings.Contains(rest, "#") {
		return p, errors.New("a # is not allowed; write it as %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.HasPrefix(rest, "//") {
		p.slashes = true
		rest = rest[2:]
		p.hosts = rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			p.hosts, p.path = rest[:i], rest[i:]
		}
		if i := strings.LastIndexByte(p.hosts, '@'); i >= 0 {
			p.userinfo, p.hosts, p.hasUser = p.hosts[:i], p.hosts[i+1:], true
		}
	} else {
		p.path = rest
	}
	p.lateAt = strings.Contains(p.path, "@") || strings.Contains(query, "@")
	var err error
	p.params, err = parseQuery(query)
	return p, err
}

// isScheme reports whether s can be the name of a scheme.
func isScheme(s string) bool {
	for i, r := range strings.ToLower(s) {
		if !('a' <= r && r <= 'z' || i > 0 && ('0' <= r && r <= '9' || strings.ContainsRune("+-.", r))) {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// noValue marks a parameter that was written without a "=".
const noValue = "\x00"

// shownName returns a space and the name of a parameter, or nothing if it may be the rest of a password with an &
// in it.
func shownName(name string) string {
	if name == "" || len(name) > 40 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-_") != "" {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// parseQuery reads the parameters. Its errors show a name at most.
func parseQuery(query string) (map[string]string, error) {
	params := make(map[string]string)
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, hasValue := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			return nil, errors.New("the name of a parameter has a % without two hex digits")
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			return nil, fmt.Errorf("the value of parameter%s has a %% without two hex digits", shownName(name))
		}
		if !hasValue {
			name += noValue
		}
		if _, twice := params[name]; twice {
			return nil, fmt.Errorf("parameter%s is given twice", shownName(name))
		}
		params[name] = value
	}
	return params, nil
}

// lookup finds the scheme, or says why there is none.
func lookup(p parts) (scheme, error) {
	if s, ok := schemes[p.scheme]; ok {
		return s, nil
	}
	switch reason, known := refused[p.scheme]; {
	case known:
		return scheme{}, errors.New(reason)
	case slices.Contains(planned, p.scheme):
		return scheme{}, fmt.Errorf("%s: is not part of this build; use one of %s", p.scheme, strings.Join(forms(), ", "))
	case !p.slashes:
		// "user:secret" looks like a scheme too.
		return scheme{}, fmt.Errorf("no scheme that is known; an address begins with one of %s", strings.Join(forms(), ", "))
	default:
		return scheme{}, fmt.Errorf("unknown scheme %q; use one of %s", p.scheme, strings.Join(forms(), ", "))
	}
}
