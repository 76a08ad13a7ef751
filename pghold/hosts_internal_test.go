package pghold

import (
	"net"
	"slices"
	"strconv"
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
