package pghold

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// servers are those that a URL is read as, in the order in which they are asked.
func servers(c *pgx.ConnConfig) []string {
	list := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, other := range c.Fallbacks {
		list = append(list, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	return list
}

// Each host of a list has its own port, or that of PostgreSQL. PGPORT is for a host alone, as with
// psql.
func TestHostsOfAURL(t *testing.T) {
	t.Setenv("PGHOST", "other")
	t.Setenv("PGPORT", "6")
	for list, want := range map[string][]string{
		"h":                  {"h:6"},
		"":                   {"other:6"},
		":7":                 {"other:7"},
		"h:":                 {"h:6"},
		"h,g":                {"h:5432", "g:5432"},
		"h:1,g:2":            {"h:1", "g:2"},
		"h,g:2":              {"h:5432", "g:2"},
		"h:1,g":              {"h:1", "g:5432"},
		"[::1]:1,[::2]:2":    {"[::1]:1", "[::2]:2"},
		"h:1,[::2],10.0.0.1": {"h:1", "[::2]:5432", "10.0.0.1:5432"},
		"[fe80::1%25a]:1":    {"[fe80::1%a]:1"},
		"[fe80::1%25a]":      {"[fe80::1%a]:6"},
		"[fe80::1%25a],h:1":  {"[fe80::1%a]:5432", "h:1"},
		"[fe80::1%eth0]":     {"[fe80::1%eth0]:6"},
		"fe80::1%25a":        {"[fe80::1%a]:6"},
		"[::1%31]:1":         {"[::11]:1"},
		"h%31":               {"h1:6"},
		"h%31,h2:7":          {"h1:5432", "h2:7"},
		"%2Fvar%2Frun":       {"/var/run:6"},
		"%2Fvar%2Frun:7,h":   {"/var/run:7", "h:5432"},
	} {
		read, err := parse("postgres://u:p@"+list+"/db?sslmode=disable", new(config))
		if err != nil {
			t.Errorf("%s: %v", list, err)
			continue
		}
		c := read.ConnConfig
		if got := servers(c); !slices.Equal(got, want) || c.User != "u" || c.Password != "p" ||
			c.Database != "db" {
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

// What is escaped is read as libpq reads it, and what is empty in front of the parameters is left
// to variables.
func TestValuesOfAURL(t *testing.T) {
	t.Setenv("PGUSER", "user")
	t.Setenv("PGPASSWORD", "word")
	t.Setenv("PGDATABASE", "base")
	for raw, want := range map[string][4]string{
		"postgres://h":                           {"user", "word", "base", "holdfast"},
		"postgres://@h/":                         {"user", "word", "base", "holdfast"},
		"postgres://:p@h":                        {"user", "p", "base", "holdfast"},
		"postgres://u:@h":                        {"u", "word", "base", "holdfast"},
		"postgres://u%3A+:p%40:+@h/d%2F+":        {"u:+", "p@:+", "d/+", "holdfast"},
		"postgres://u:p@h/d/e?":                  {"u", "p", "d/e", "holdfast"},
		"postgres://u:p%40x@h//d?&":              {"u", "p@x", "/d", "holdfast"},
		"postgres://u:<[p]>@h/d d":               {"u", "<[p]>", "d d", "holdfast"},
		"postgresql://u@h/d?application_name=a+": {"u", "word", "d", "a+"},
		"postgres://h/d?application_name=%2B=?/": {"user", "word", "d", "+=?/"},
		"postgres://h?application%5Fname=a%20b&": {"user", "word", "base", "a b"},
		"postgres://u:p@h/d?dbname=e":            {"u", "p", "e", "holdfast"},
		"postgres://u:p@h/d?database=e":          {"u", "p", "e", "holdfast"},
		"postgres://u:p@h/d?user=v&password=%26": {"v", "&", "d", "holdfast"},
	} {
		read, err := parse(raw, new(config))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		c := read.ConnConfig
		got := [4]string{c.User, c.Password, c.Database, c.RuntimeParams["application_name"]}
		if c.Host != "h" || got != want {
			t.Errorf("%s is read as host %s, %q; want h, %q", raw, c.Host, got, want)
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
	t.Setenv("PGHOST", "k,l")
	t.Setenv("PGPORT", "6")
	for raw, want := range map[string][]string{
		"postgres://h:1,g:2/db?sslmode=disable&port=3":        {"h:3", "g:3"},
		"postgres://h:1,g:2/db?sslmode=disable&host=i,j":      {"i:1", "j:2"},
		"postgres://h:1,g:2/db?sslmode=disable&host=i&port=3": {"i:3"},
		"postgres:///db?sslmode=disable&host=i,j":             {"i:6", "j:6"},
		"postgres:///db?sslmode=disable&port=1,2":             {"k:1", "l:2"},
	} {
		read, err := parse(raw, new(config))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := servers(read.ConnConfig); !slices.Equal(got, want) {
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

// There is one port for all hosts, or one for each, also where variables name them. A service file
// may name other hosts than the variables.
func TestPortsOfVariables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(file, []byte("[two]\nhost=k,l\nport=1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSERVICEFILE", file)
	t.Setenv("PGPORT", "6,7")
	for raw, want := range map[string]bool{"postgres://h/db": false, "postgres:///db": false,
		"postgres://h:1/db": true, "postgres://?host=h,g": true, "postgres://h,g/db": true,
		"postgres://?host=h,g,i": false, "postgres:///db?port=8,9": false,
		"postgres:///db?service=two": true, "postgres://h:1/db?port=8,9&service=two": false} {
		if err := Validate(raw); (err == nil) != want ||
			err != nil && !strings.Contains(err.Error(), "2 ports for") {
			t.Errorf("with two ports in PGPORT, %s: %v; want it to be taken: %v", raw, err, want)
		}
	}
}

// Where libpq would go to PGHOSTADDR, another server must not be asked in its place.
func TestAddressVariable(t *testing.T) {
	t.Setenv("PGHOSTADDR", "10.0.0.1")
	if err := Validate("postgres://h/db"); err == nil ||
		!strings.Contains(err.Error(), "PGHOSTADDR") {
		t.Errorf("with PGHOSTADDR: %v; want that it is not known", err)
	}
}

// The database has the name of the user unless anything names one, also in .pgpass.
func TestPasswordOfTheDefaultDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(file, []byte("h:*:u:u:right\nh:*:*:*:wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{"postgres://u@h": "right", "postgres://u@h/d": "wrong",
		"postgres://u:p@h": "p"} {
		read, err := parse(raw+"?passfile="+file, new(config))
		if err != nil || read.ConnConfig.Password != want {
			t.Errorf("%s: %v, or another password than %q", raw, err, want)
		}
	}
}
