// Package hosts reads the list of hosts of a URL.
package hosts

import (
	"errors"
	"fmt"
	"net"
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

// split takes one host apart.
func split(s, defaultPort string) (host, port string, err error) {
	host, port = s, defaultPort
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	} else if strings.ContainsAny(s, ":[]") {
		return "", "",
			errors.New(
				"must be host, host:port or [address]:port, with an '@' before it if there is a login")
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
