package redlock

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/quorum"
)

// address is a URL taken apart. What concerns a single node stays in the form that redishold reads.
type address struct {
	scheme  string
	nodes   []string // URLs for redishold, each with all of user, database and the nodes' parameters
	names   []string // host:port, in the same order
	lateAt  bool     // there is an '@' behind the hosts
	options []quorum.Option
}

// schemes are those of the nodes by those of the whole.
var schemes = map[string]string{"redlock": "redis", "redlocks": "rediss"}

// parse takes a URL apart. Its errors quote the part that is wrong, unless that may be a piece of a password.
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
	a.lateAt = strings.Contains(path, "@")
	path, query, _ := strings.Cut(path, "?")
	parameters, err := a.parameters(query)
	if err != nil {
		return nil, a.explain(err)
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	for host := range strings.SplitSeq(hosts, ",") {
		a.nodes = append(a.nodes, node+"://"+user+host+path+parameters)
		a.names = append(a.names, hostPort(host))
	}
	return a, nil
}

// hostPort completes what redishold takes for a host as redishold does.
func hostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), "6379"
	}
	return net.JoinHostPort(strings.ToLower(host), port)
}

// parameters takes out those of the whole, and returns those of the nodes, with their '?'.
func (a *address) parameters(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("URL: parameters are not well formed: escape special characters with %")
	}
	known := []string{"restart-guard", "node-timeout", "db"}
	certificates := []string{"tls-ca", "tls-cert", "tls-key"}
	if a.scheme == "redlocks" {
		known = append(known, certificates...)
	}
	for name, all := range values {
		switch {
		case slices.Contains(certificates, name) && a.scheme != "redlocks":
			return "", fmt.Errorf("URL: parameter %q needs TLS: begin the URL with redlocks://", name)
		case !slices.Contains(known, name):
			return "", fmt.Errorf("URL: unknown parameter %q: known are %s", name, strings.Join(known, ", "))
		case len(all) != 1:
			return "", fmt.Errorf("URL: parameter %q is given %d times", name, len(all))
		}
	}
	if text, ok := take(values, "restart-guard"); ok {
		guard, err := time.ParseDuration(text)
		if err != nil || guard < 0 {
			return "", fmt.Errorf("URL: restart-guard %q: must be a duration, 60s for example, and 0s for no quarantine", text)
		}
		a.options = append(a.options, quorum.WithGuard(guard))
	}
	if text, ok := take(values, "node-timeout"); ok {
		timeout, err := time.ParseDuration(text)
		if err != nil || timeout < time.Millisecond {
			return "", fmt.Errorf("URL: node-timeout %q: must be a duration of at least 1ms, 50ms for example", text)
		}
		a.options = append(a.options, quorum.WithNodeTimeout(timeout))
	}
	if len(values) == 0 {
		return "", nil
	}
	return "?" + values.Encode(), nil
}

// take removes a parameter and returns its value.
func take(values url.Values, name string) (value string, ok bool) {
	ok = values.Has(name)
	value = values.Get(name)
	values.Del(name)
	return value, ok
}

// validate checks what no single node can.
func (a *address) validate() error {
	seen := make(map[string]bool)
	for _, name := range a.names {
		switch {
		case strings.HasPrefix(name, ":"):
			return fmt.Errorf("URL: a host is empty: write %s://host:port,host:port,host:port", a.scheme)
		case seen[name]:
			return fmt.Errorf("URL: host %q is there twice: it would have two votes", name)
		}
		seen[name] = true
	}
	if len(a.names) < minNodes {
		return fmt.Errorf("URL: %d hosts: at least %d are needed, with fewer none may fail; for a single server use %s://",
			len(a.names), minNodes, schemes[a.scheme])
	}
	return nil
}

// explain keeps a password back that has '/', '?' or '#' in it: it ends where it looks like the path, and the rest of
// it up to the '@' is taken for something else.
func (a *address) explain(err error) error {
	if a.lateAt {
		return errors.New("URL: not well formed, with an '@' behind '/', '?' or '#': in user name, password and parameters escape these with %")
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner // without redishold's name before it
	}
	return err
}
