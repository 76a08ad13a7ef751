package backendurl_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/fence"
)

func TestParseGuard(t *testing.T) {
	type database = backendurl.Database
	for raw, want := range map[string]struct {
		shown string
		database
	}{
		"file:///var/lib/x":                {"file:///var/lib/x", database{}},
		"redis://:p%40@h:1/2?prefix=":      {"redis://h:1/2", database{}},
		"redis+sentinel://a,b/p?prefix=x":  {"redis+sentinel://a,b/p", database{}},
		"redis+unix:///s?db=1":             {"redis+unix:///s", database{}},
		"sqlite:///a%20b":                  {"sqlite:///a%20b", database{Kind: "sqlite", File: "/a b"}},
		"sqlite:///a@b?table=t":            {"sqlite:///a%40b", database{Kind: "sqlite", File: "/a@b", Table: "t"}},
		"postgres://u:p%2F%40@a:1,[::1]/d": {"postgres://a:1,[::1]/d", database{Kind: "postgres", User: "u", Password: "p/@", Hosts: "a:1,[::1]", Name: "d"}},
		"POSTGRESQL:///d?host=%2Frun&table=s.t": {"postgresql:///d", database{Kind: "postgres", Name: "d",
			Table: "s.t", Params: map[string]string{"host": "/run"}}},
		"mysql://u@h/d?tls=true": {"mysql://h/d", database{Kind: "mysql", User: "u", Hosts: "h", Name: "d",
			Params: map[string]string{"tls": "true"}}},
		"mariadb:///d": {"mariadb:///d", database{Kind: "mysql", Name: "d"}},
	} {
		g, err := backendurl.ParseGuard(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if len(g.Database.Params) == 0 {
			g.Database.Params = nil
		}
		if g.String() != want.shown || !reflect.DeepEqual(g.Database, want.database) {
			t.Errorf("%s: %s, %+v; want %s, %+v", raw, g, g.Database, want.shown, want.database)
		}
	}
}

func TestParseGuardBadInput(t *testing.T) {
	for raw, words := range map[string]string{
		"":                             "no scheme",
		"/var/lib/x":                   "no scheme",
		"secret:hidden":                "no scheme that is known",
		"http://h":                     `unknown scheme "http"`,
		"redlock://a,b,c":              "by another store",
		"redlocks://a,b,c":             "by another store",
		"file:":                        "not absolute",
		"file://dir":                   "write three",
		"file:///d?shared=true":        "parameter 1 is unknown",
		"sqlite:db":                    "not absolute",
		"sqlite://hidden@/db":          "no user",
		"redis:h":                      "write redis://",
		"redis://a,b":                  "2 hosts",
		"redis://h?wait=1":             "parameter 1 is unknown",
		"postgres:d":                   "write postgres://",
		"postgres://h":                 "no name of one database",
		"postgres://h/a/b":             "no name of one database",
		"postgres://u:hidden%zz@h/d":   "two hex digits",
		"postgres://u:hid%00den@h/d":   "zero byte",
		"postgres://u:hidden/@h/d":     "an @ after the host",
		"postgres://h,:hidden/d":       "host 2",
		"postgres://hidden!/d":         "host 1",
		"postgres://h/d?hidden=1":      "parameter 1 is unknown",
		"postgres://h/d?host=/run":     "only one of them",
		"mysql://h/d?socket=/run/s":    "only one of them",
		"mysql://a,b/d":                "2 hosts",
		"mysql://h/d?table=t;hidden":   "no plain name",
		"mysql://h/d?table=a.b.c":      "no plain name",
		"mysql://h/d?table=":           "no plain name",
		"sqlite:///d?table=%22hidden":  "no plain name",
		"mysql://h/d?tls=true&tls=x":   "given twice",
		"mysql://h/d#hidden":           "# is not allowed",
		"postgres://u:hidden@h/d?\x01": "control character",
	} {
		_, err := backendurl.ParseGuard(raw)
		if err == nil || !strings.Contains(err.Error(), words) ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v; want %q in it, and nothing hidden", raw, err, words)
		}
	}
}

// TestGuardResource: a name that a store cannot keep is refused without a request.
func TestGuardResource(t *testing.T) {
	long := strings.Repeat("x", fence.MaxResourceLen)
	for raw, longest := range map[string]string{
		"file:///d":              long,
		"postgres://h/d":         long,
		"redis://h":              long[len("fence:"):],
		"redis://h?prefix=":      long,
		"redis://h?prefix=12345": long[5:],
	} {
		g, err := backendurl.ParseGuard(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.CheckResource(longest); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		for _, bad := range []string{longest + "x", "", "a\x00", "\xff"} {
			if err := g.CheckResource(bad); err == nil {
				t.Errorf("%s: takes %q", raw, bad)
			}
		}
	}
}

// TestGuardHelp: the help lists each form and each parameter.
func TestGuardHelp(t *testing.T) {
	text := backendurl.GuardHelp()
	for _, want := range append(backendurl.GuardForms(), "?prefix=", "?table=", "?tls-ca=",
		"?sslmode=", "?socket=") {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
