// Package backendurl parses the addresses that the command takes from --on, HOLDFAST_URL and
// HOLDFAST_FENCE_URL, and opens the backends and stores that they name.
//
// An address may have a secret in it: a password in front of the host, or a parameter. No error and
// no String of this package shows what is before an @, the name of an unknown parameter, or the
// value of a parameter that may be secret.
package backendurl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// Address is the parsed address of a backend.
type Address struct {
	shown  string
	prefix string
	open   opener
	limits limits

	program string // see Program; empty: any
}

// String returns the address without anything that may be secret: no user, no password, no
// parameters.
func (a *Address) String() string { return a.shown }

// Prefix returns the text before every name in a key: the parameter prefix, or the scheme's
// default.
func (a *Address) Prefix() string { return a.prefix }

// CheckTTL returns an error if the backend would refuse every lease of that length, or could not
// grant one in time. That is a mistake in the configuration, not an outage. It sends no request.
func (a *Address) CheckTTL(ttl time.Duration) error {
	switch {
	case a.limits.longest > 0 && ttl > a.limits.longest:
		return fmt.Errorf("must not be longer than %s %v", a.limits.why, a.limits.longest)
	case a.limits.tooShort(ttl):
		return fmt.Errorf("must be at least %v, as etcd counts leases in whole seconds",
			a.limits.shortest)
	case ttl <= a.limits.timeout:
		return fmt.Errorf("must be longer than node-timeout, which is %v", a.limits.timeout)
	}
	return nil
}

// limits bound the TTL of a lease.
type limits struct {
	longest  time.Duration // 0: any
	why      string        // what bounds it, up to the number
	shortest time.Duration // 0: any
	timeout  time.Duration // for one call to a server; 0: not known
}

// Open opens the backend. The caller closes it. Open fails if the backend cannot be used, for
// example if a directory is missing or not writable, or a server does not answer. ctx bounds the
// opening only. watch observes the servers of a redlock address (see quorum.WithObserver), and may
// be nil.
func (a *Address) Open(ctx context.Context, watch func(quorum.NodeEvent)) (driver.Backend, error) {
	return a.open(ctx, how{watch: watch})
}

// Look opens the backend as Open does, but only to look at it. It writes nothing to a server, and
// the user needs no right to write. A directory has to exist.
func (a *Address) Look(ctx context.Context) (driver.Backend, error) {
	return a.open(ctx, how{reads: true})
}

// how says how a backend is opened.
type how struct {
	watch func(quorum.NodeEvent) // see Open
	reads bool                   // see Look
}

// opener opens the backend of an address.
type opener func(ctx context.Context, h how) (driver.Backend, error)

// parts are the parts of an address. net/url is not used to split it: it refuses several hosts with
// ports, and its errors repeat the address.
type parts struct {
	scheme   string            // lower case
	slashes  bool              // there is a "//" after the scheme
	userinfo string            // secret: what is before the last @ of the authority
	hasUser  bool              // there is such an @
	hosts    string            // the rest of the authority
	path     string            // as written, with its leading slash if there is one
	lateAt   bool              // there is an @ after the authority
	params   map[string]string // by name; a name without a "=" ends with noValue
	names    []string          // names of params, in the order of the address
}

// Parse parses an address. It opens nothing and sends no request. An error says what is wrong and
// what is allowed. It shows no user, no password and no value that may be secret.
func Parse(raw string) (*Address, error) {
	p, err := split(raw, forms)
	if err != nil {
		return nil, err
	}
	s, err := lookup(p)
	if err != nil {
		return nil, err
	}
	if err := checkParts(p, s.params, s.noServer); err != nil {
		return nil, err
	}
	a := &Address{prefix: s.prefix, program: s.program}
	if prefix, ok := p.params["prefix"]; ok {
		if len(prefix) >= driver.MaxKeyLen {
			return nil,
				fmt.Errorf("parameter prefix has %d bytes; prefix and name together may have %d",
					len(prefix), driver.MaxKeyLen)
		}
		a.prefix = prefix
	}
	a.shown, a.open, err = s.parse(p)
	if err != nil {
		return nil, err
	}
	if s.limits != nil {
		a.limits = s.limits(p.params)
	}
	return a, nil
}

// checkParts checks what all schemes have in common. params are the parameters that this scheme
// takes.
func checkParts(p parts, params map[string]string, noServer bool) error {
	// A password with / or ? in it ends the authority early. The rest of the password would then be
	// shown as a path or as the name of a parameter.
	if p.lateAt && !noServer {
		return fmt.Errorf(
			"there is an @ after the host; in a user or password write / ? # @ as %%2F %%3F %%23 %%40")
	}
	for i, name := range p.names {
		if _, ok := params[name]; !ok {
			return fmt.Errorf(
				"parameter %d is unknown, or the rest of a value in which an & has to be %%26; %s: takes %s",
				i+1, p.scheme, strings.Join(slices.Sorted(maps.Keys(params)), ", "))
		}
	}
	return nil
}

// split splits an address. forms are for the error if it has no scheme.
func split(raw string, forms func() []string) (parts, error) {
	var p parts
	scheme, rest, found := strings.Cut(raw, ":")
	if !found || !isScheme(scheme) {
		// Do not show the text: it may begin with a password.
		return p, fmt.Errorf("no scheme; an address begins with one of %s", beginnings(forms()))
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
	p.params, p.names, err = parseQuery(query)
	return p, err
}

// isScheme reports whether s can be the name of a scheme.
func isScheme(s string) bool {
	for i, r := range strings.ToLower(s) {
		if !('a' <= r && r <= 'z' || i > 0 &&
			('0' <= r && r <= '9' || strings.ContainsRune("+-.", r))) {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// noValue marks a parameter that was written without a "=".
const noValue = "\x00"

// parseQuery parses the parameters. Its errors show no name and no value: what looks like a name
// may be the rest of a password.
func parseQuery(query string) (params map[string]string, names []string, err error) {
	params = make(map[string]string)
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, hasValue := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(rawName)
		value, err2 := url.QueryUnescape(rawValue)
		if err1 != nil || err2 != nil {
			return nil, nil, fmt.Errorf("parameter %d has a %% without two hex digits",
				len(names)+1)
		}
		if !hasValue {
			name += noValue
		}
		if _, twice := params[name]; twice {
			return nil, nil, fmt.Errorf("parameter %d is given twice", len(names)+1)
		}
		params[name] = value
		names = append(names, name)
	}
	return params, names, nil
}

// lookup returns the scheme of an address. Its error says why there is none and what to use.
func lookup(p parts) (scheme, error) {
	if s, ok := schemes[p.scheme]; ok {
		return s, nil
	}
	switch reason, known := refused[p.scheme]; {
	case known:
		return scheme{}, errors.New(reason)
	case slices.Contains(planned, p.scheme):
		return scheme{}, fmt.Errorf("%s: is not part of this build; use one of %s", p.scheme,
			beginnings(forms()))
	case !p.slashes:
		// Do not show it: "user:secret" looks like a scheme too.
		return scheme{}, fmt.Errorf("no scheme that is known; an address begins with one of %s",
			beginnings(forms()))
	default:
		return scheme{}, fmt.Errorf("unknown scheme %q; use one of %s", p.scheme,
			beginnings(forms()))
	}
}

// beginnings lists the beginnings of addresses of these forms, for an error. The forms themselves
// are in the help, and would fill half a screen.
func beginnings(forms []string) string {
	var all []string
	for _, form := range forms {
		scheme, _, _ := strings.Cut(form, "://")
		all = append(all, scheme+"://")
	}
	return strings.Join(all, ", ")
}
