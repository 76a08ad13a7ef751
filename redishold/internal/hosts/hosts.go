// Package hosts reads the list of hosts of a URL.
package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Parse reads a list of hosts with commas between them, each "host", "host:port", "[::1]" or
// "[::1]:port". It returns them as host:port, with port where none is given. No host may be empty:
// if that meant localhost, a variable that is not set would have each machine lock for itself.
//
// An error names the host by number and does not quote it, because it may be a password after which
// the '@' was forgotten.
func Parse(list, port string) ([]string, error) {
	all := strings.Split(list, ",")
	addresses := make([]string, len(all))
	for i, s := range all {
		host, port, err := split(s, port)
		if err == nil && host == "" {
			err = errors.New("has no name")
		}
		switch {
		case err == nil:
			addresses[i] = net.JoinHostPort(host, port)
		case len(all) > 1:
			return nil, fmt.Errorf("host %d of %d %w", i+1, len(all), err)
		default:
			return nil, fmt.Errorf("the host %w", err)
		}
	}
	return addresses, nil
}

// split takes one host apart, and checks it.
func split(s, defaultPort string) (host, port string, err error) {
	host, port, ok := separate(s, defaultPort)
	if !ok {
		return "", "", errors.New("must be host:port, or [IPv6]:port with nothing but an IPv6 address " +
			"in brackets, with an '@' before it if there is a login")
	}
	if strings.ContainsFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return "", "", errors.New("has a space in it")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "",
			errors.New(
				"has a port that is not 1 to 65535; if it is a password, an '@' is missing behind it")
	}
	return host, port, nil
}

// separate takes host, host:port, [IPv6] or [IPv6]:port apart; port is that of a host without one.
// What is in brackets must be an IPv6 address. It may be a login without its '@', which must not be
// looked up as a host and be shown in the error about that.
func separate(s, port string) (host, itsPort string, ok bool) {
	host, rest := s, ""
	if inside, bracketed := strings.CutPrefix(s, "["); bracketed {
		host, rest, ok = strings.Cut(inside, "]")
		host = strings.Replace(host, "%25", "%", 1) // before a zone; URLs have it so
		ip, err := netip.ParseAddr(host)
		if !ok || err != nil || !ip.Is6() {
			return "", "", false
		}
	} else if i := strings.IndexAny(s, ":[]"); i >= 0 {
		host, rest = s[:i], s[i:]
	}
	if rest == "" {
		return host, port, true
	}
	port, ok = strings.CutPrefix(rest, ":")
	return host, port, ok && !strings.ContainsAny(port, ":[]")
}
