package redlock

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/internal/hosts"
)

// address is a URL taken apart. The parts for a single node stay in the form that redishold reads.
type address struct {
	scheme string
	// URLs for redishold, each with all of user, database and the nodes' parameters
	nodes []string
	names []string // host:port, in the same order
	// the name that the operator gives to just these servers; empty for their addresses
	set     string
	options []quorum.Option
}

// schemes are the schemes of the nodes' URLs, by that of the whole.
var schemes = map[string]string{"redlock": "redis", "redlocks": "rediss"}

// parse takes a URL apart. Like those of redishold, its errors quote nothing that may be a piece of
// a password.
func parse(raw string) (*address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	node, known := schemes[scheme]
	if !ok || !known {
		return nil, errors.New("URL: must begin with redlock://, or redlocks:// for TLS")
	}
	a := &address{scheme: scheme}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "@") {
		// A password with one of them in it seems to end there, and its rest would be taken for
		// something else.
		return nil,
			errors.New(
				"URL: has an '@' behind '/', '?' or '#': in user name, password and parameters escape these with %")
	}
	path, query, _ := strings.Cut(path, "?")
	parameters, err := a.parameters(query)
	if err != nil {
		return nil, err
	}
	user, list := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	if _, more, repeated := strings.Cut(strings.TrimSuffix(user, "@"), "@"); repeated &&
		strings.Contains(more, ",") {
		return nil, errors.New("URL: has several '@': " +
			"write user and password once, in front of the first host; in them write '@' as %40")
	}
	all, err := hosts.Parse(list, "6379")
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	for _, host := range all {
		a.nodes = append(a.nodes, node+"://"+user+host+path+parameters)
		a.names = append(a.names, strings.ToLower(host))
	}
	return a, a.validate()
}

// parameters reads the parameters of the whole, and returns those of the nodes, with their '?'.
func (a *address) parameters(query string) (string, error) {
	known := []string{"restart-guard", "node-timeout", "durable", "db", "set"}
	certificates := []string{"tls-ca", "tls-cert", "tls-key"}
	if a.scheme == "redlocks" {
		known = append(known, certificates...)
	}
	values := make(url.Values)
	i := 0
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		i++
		one, err := url.ParseQuery(pair)
		if err != nil {
			return "",
				fmt.Errorf(
					"URL: parameter %d is not well formed: escape special characters with %%", i)
		}
		for name, value := range one {
			switch {
			case slices.Contains(certificates, name) && a.scheme != "redlocks":
				return "", fmt.Errorf("URL: parameter %q needs TLS: begin the URL with redlocks://",
					name)
			case !slices.Contains(known, name):
				return "", fmt.Errorf("URL: parameter %d is unknown: known are %s", i,
					strings.Join(known, ", "))
			case values.Has(name):
				return "", fmt.Errorf("URL: parameter %q is given twice", name)
			}
			values[name] = value
		}
	}
	for _, own := range []struct {
		name string
		read func(text string) error
	}{{"restart-guard", a.readGuard}, {"node-timeout", a.readTimeout}, {"set", a.readSet}} {
		if !values.Has(own.name) {
			continue
		}
		if err := own.read(values.Get(own.name)); err != nil {
			return "", err
		}
		values.Del(own.name)
	}
	if len(values) == 0 {
		return "", nil
	}
	return "?" + values.Encode(), nil
}

func (a *address) readGuard(text string) error {
	guard, err := time.ParseDuration(text)
	if err != nil || guard < 0 {
		return fmt.Errorf(
			"URL: restart-guard %q: must be a duration, 60s for example, and 0s for no quarantine",
			text)
	}
	a.options = append(a.options, quorum.WithGuard(guard))
	return nil
}

func (a *address) readTimeout(text string) error {
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < time.Millisecond {
		return fmt.Errorf("URL: node-timeout %q: must be a duration of at least 1ms, 50ms for example",
			text)
	}
	a.options = append(a.options, quorum.WithNodeTimeout(timeout))
	return nil
}

func (a *address) readSet(text string) error {
	if text == "" || len(text) > maxSetName || strings.ContainsFunc(text, func(r rune) bool {
		return r > '~' || !isNameByte(byte(r))
	}) {
		return fmt.Errorf("URL: set %.80q: must be 1 to %d letters, digits, '.', '_' or '-'", text,
			maxSetName)
	}
	a.set = text
	return nil
}

// maxSetName bounds the name that an operator gives to a set of servers.
const maxSetName = 64

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' ||
		c == '_' || c == '-'
}

// setName returns the name of the set of servers, the same for the same addresses in any order.
func (a *address) setName() string {
	if a.set != "" {
		return a.set
	}
	return strings.Join(slices.Sorted(slices.Values(a.names)), ",")
}

// validate checks what concerns several nodes.
func (a *address) validate() error {
	for i, name := range a.names {
		if first := slices.Index(a.names, name); first < i {
			return fmt.Errorf("URL: hosts %d and %d are the same: it would have two votes", first+1,
				i+1)
		}
	}
	if len(a.names) < minNodes {
		return fmt.Errorf(
			"URL: %d hosts: at least %d are needed, with fewer none may fail; for a single server use %s://",
			len(a.names), minNodes, schemes[a.scheme])
	}
	return nil
}
