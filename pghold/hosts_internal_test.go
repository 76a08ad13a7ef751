package pghold

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each host of a list has its own port, or that of PostgreSQL if only others have one.
func TestHostsOfAURL(t *testing.T) {
	t.Setenv("PGPORT", "6")
	for list, want := range map[string][]string{
		"h":                  {"h:6"},
		"h,g":                {"h:6", "g:6"},
		"h:1,g:2":            {"h:1", "g:2"},
		"h,g:2":              {"h:5432", "g:2"},
		"h:1,g":              {"h:1", "g:5432"},
		"[::1]:1,[::2]:2":    {"[::1]:1", "[::2]:2"},
		"h:1,[::2],10.0.0.1": {"h:1", "[::2]:5432", "10.0.0.1:5432"},
		"[fe80::1%25a]:1":    {"[fe80::1%a]:1"},
		"[fe80::1%25a]":      {"[fe80::1%a]:6"},
		"[fe80::1%25a],h:1":  {"[fe80::1%a]:5432", "h:1"},
	} {
		read, err := parse("postgres://u:p@"+list+"/db?sslmode=disable", new(config))
		if err != nil {
			t.Errorf("%s: %v", list, err)
			continue
		}
		c := read.ConnConfig
		got := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
		for _, other := range c.Fallbacks {
			got = append(got, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
		}
		if !slices.Equal(got, want) || c.User != "u" || c.Password != "p" || c.Database != "db" {
			t.Errorf("%s is read as %q, user %s, database %s; want %q", list, got, c.User,
				c.Database, want)
		}
	}
}

// A URL may leave out all that stands in front of the parameters, and names its servers all the
// same.
func TestURLsWithoutAPath(t *testing.T) {
	t.Setenv("PGHOST", "other")
	for raw, want := range map[string]string{
		"postgres://?host=h&password=p&sslmode=verify-full": "h",
		"postgres://?host=/run&password=p":                  "/run",
		"postgres://h,g?password=p&sslmode=verify-full":     "h",
		"postgres://h:1,g:2?password=p":                     "h",
		"postgres://h,g":                                    "h",
		"postgres://":                                       "other",
	} {
		read, err := parse(raw, new(config))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		c := read.ConnConfig
		verified := c.TLSConfig != nil && !c.TLSConfig.InsecureSkipVerify
		if c.Host != want || strings.Contains(raw, "password") != (c.Password == "p") ||
			strings.Contains(raw, "verify-full") != verified {
			t.Errorf("%s is read as host %s, password %q, verified %v; want host %s", raw, c.Host,
				c.Password, verified, want)
		}
	}
}

// No error tells the user, wherever it stands.
func TestUserOfAURL(t *testing.T) {
	for _, raw := range []string{"postgres://u@h/db", "postgres://h/db?user=u",
		"postgres://other@h/db?user=u"} {
		c := new(config)
		if _, err := parse(raw, c); err != nil || c.user != "u" {
			t.Errorf("%s: the user is %q (%v), want u", raw, c.user, err)
		}
	}
}

// A parameter prevails over what stands in its place in the list of hosts, and over nothing else.
func TestParametersOfServers(t *testing.T) {
	for raw, want := range map[string][]string{
		"postgres://h:1,g:2/db?sslmode=disable&port=3":        {"h:3", "g:3"},
		"postgres://h:1,g:2/db?sslmode=disable&host=i,j":      {"i:1", "j:2"},
		"postgres://h:1,g:2/db?sslmode=disable&host=i&port=3": {"i:3"},
	} {
		read, err := parse(raw, new(config))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		c := read.ConnConfig
		got := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
		for _, other := range c.Fallbacks {
			got = append(got, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is read as %q, want %q", raw, got, want)
		}
	}
}

// Of several servers one is wanted that takes writes, unless the URL says that any will do.
func TestAnyOfSeveralServers(t *testing.T) {
	for raw, want := range map[string]bool{
		"postgres://h,g/db":                              true,
		"postgres://h,g/db?target_session_attrs=any":     false,
		"postgres://h/db?target_session_attrs=any":       false,
		"postgres://h,g/db?target_session_attrs=standby": true,
	} {
		read, err := parse(raw, new(config))
		if err != nil || (read.ConnConfig.ValidateConnect != nil) != want {
			t.Errorf("%s: a server is looked at: %v, want %v (%v)", raw,
				err == nil && read.ConnConfig.ValidateConnect != nil, want, err)
		}
	}
}
