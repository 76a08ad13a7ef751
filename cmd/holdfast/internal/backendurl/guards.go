package backendurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/redishold"
)

// Guard is the address of a store that keeps the newest tokens of resources.
type Guard struct {
	shown  string
	prefix string
	open   func() (guard.Store, error) // nil if the store is a database

	// Database says where the store is if it is a table of a database. Only holdfast-fence has the
	// drivers for that.
	Database Database
}

// Database is the parsed address of a guard table.
type Database struct {
	Kind  string // Postgres, MySQL or SQLite; empty if the store is no database
	Table string // its name in SQL; empty unless it was given

	User, Password string            // secret
	Hosts          string            // host:port, several with commas between
	Name           string            // of the database
	File           string            // of SQLite
	Params         map[string]string // other parameters, as they were given
}

// The kinds of databases.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	SQLite   = "sqlite"
)

// String returns the address without anything that may be secret: no user, no password, no
// parameters.
func (g *Guard) String() string { return g.shown }

// CheckResource fails with fence.ErrInvalid for a name that the store cannot keep. It sends no
// request.
func (g *Guard) CheckResource(resource string) error {
	if err := fence.Validate(resource, fence.MaxToken); err != nil {
		return err
	}
	if len(g.prefix)+len(resource) > fence.MaxResourceLen {
		return fmt.Errorf(
			"fence: %w: the name of the resource has %d bytes and the prefix of the address %d; together they may have %d",
			fence.ErrInvalid, len(resource), len(g.prefix), fence.MaxResourceLen)
	}
	return nil
}

// Open opens a store that is no database. It takes no context, so the caller has to bound it.
func (g *Guard) Open() (guard.Store, error) { return g.open() }

// guardScheme is a kind of store.
type guardScheme struct {
	form     string
	params   map[string]string
	noServer bool // an address has a path but neither host nor user

	// parse fills in g. Database.Kind is already set if the store is a database. It opens nothing
	// and sends no request. checkParts has accepted the parameters.
	parse func(g *Guard, p parts, form string) error
	kind  string // of the database; empty if the store is none
}

// guardPrefix is put before the names of resources on Redis.
const guardPrefix = "fence:"

const tableHelp = "name of the guard table; holdfast_fence unless set"

// guardSchemes returns the stores by scheme. It is a function because few starts of the command
// need them.
func guardSchemes() map[string]guardScheme {
	all := map[string]guardScheme{
		"file": {form: "file:///dir", noServer: true, parse: parseDirectory},
		"sqlite": {form: "sqlite:///path/of/file", noServer: true, kind: SQLite, parse: parseFile,
			params: map[string]string{"table": tableHelp}},
	}
	for _, name := range []string{"postgres", "postgresql"} {
		all[name] = postgresScheme(name)
	}
	for _, name := range []string{"mysql", "mariadb"} {
		all[name] = mysqlScheme(name)
	}
	for name, s := range schemes {
		if strings.HasPrefix(name, "redis") {
			all[name] = redisGuard(name, s)
		}
	}
	return all
}

func postgresScheme(name string) guardScheme {
	return guardScheme{
		form: name + "://[user[:password]@]host[:port][,host[:port]...]/database",
		kind: Postgres, parse: parseDatabase,
		params: map[string]string{
			"host":        "directory of the server's socket, in place of a host",
			"passfile":    "file with passwords; ~/.pgpass unless set",
			"search_path": "schemas in which the guard table is looked for",
			"sslmode": "disable, prefer, require, verify-ca or verify-full; prefer unless set, " +
				"which does not verify the server",
			"sslrootcert": "file with the certificates of the authorities to trust, for verify-full " +
				"or verify-ca; unless set those of PGSSLROOTCERT, ~/.postgresql/root.crt or the system",
			"sslcert": "file with the certificate of the client",
			"sslkey":  "file with the key of the client",
			"table":   tableHelp,
		},
	}
}

func mysqlScheme(name string) guardScheme {
	params := map[string]string{
		"socket": "path of the server's socket, in place of a host",
		"table":  tableHelp,
		"tls": "false, preferred, skip-verify or true; preferred unless set, which does not " +
			"verify the server; true with any of the files",
	}
	addCertificates(params)
	return guardScheme{
		form: name + "://[user[:password]@]host[:port]/database",
		kind: MySQL, parse: parseDatabase, params: params,
	}
}

// redisGuard returns a scheme whose addresses redishold parses. Redlock has no such scheme: no
// single one of independent servers knows the newest token.
func redisGuard(name string, s scheme) guardScheme {
	params := maps.Clone(s.params)
	delete(params, "wait")
	delete(params, "wait-timeout")
	params["prefix"] = "put before the name of each resource to make its key; " + guardPrefix +
		" unless set"
	parse := func(g *Guard, p parts, form string) error {
		if !p.slashes {
			return errors.New("write " + form)
		}
		g.prefix = guardPrefix
		if prefix, ok := p.params["prefix"]; ok {
			g.prefix = prefix
		}
		var address string
		g.shown, address = passOn(name, p)
		if _, err := redishold.ClientOption(address); err != nil {
			return fmt.Errorf("%w; write %s", err, form)
		}
		g.open = func() (guard.Store, error) { return guard.OpenRedis(address, g.prefix) }
		return nil
	}
	return guardScheme{form: s.form, params: params, parse: parse}
}

func parseDirectory(g *Guard, p parts, form string) error {
	dir, err := pathOf(p, "directory", form)
	if err != nil {
		return err
	}
	g.shown = shownDir(dir)
	g.open = func() (guard.Store, error) { return guard.OpenDirectory(dir) }
	return nil
}

func parseFile(g *Guard, p parts, form string) error {
	path, err := pathOf(p, "file", form)
	if err != nil {
		return err
	}
	g.shown = p.scheme + strings.TrimPrefix(shownDir(path), "file")
	g.Database.File = path
	return nil
}

// parseDatabase parses the address of a database server.
func parseDatabase(g *Guard, p parts, form string) error {
	if !p.slashes {
		return errors.New("write " + form)
	}
	user, password, _ := strings.Cut(p.userinfo, ":")
	var err1, err2, err3 error
	d := &g.Database
	d.User, err1 = url.PathUnescape(user)
	d.Password, err2 = url.PathUnescape(password)
	d.Name, err3 = url.PathUnescape(strings.TrimPrefix(p.path, "/"))
	switch {
	case errors.Join(err1, err2, err3) != nil:
		return errors.New(
			"user, password or database has a % without two hex digits; write % as %25")
	case strings.ContainsRune(d.User+d.Password+d.Name, 0):
		return errors.New("user, password or database has a zero byte")
	case d.Name == "" || strings.Contains(d.Name, "/"):
		return fmt.Errorf("no name of one database behind the host; write %s", form)
	}
	for _, name := range p.names {
		// An empty value comes from a variable that was not set. Drivers would ignore it.
		if p.params[name] == "" {
			return fmt.Errorf("parameter %s has no value; write one, or leave the parameter out",
				name)
		}
	}
	d.Hosts = p.hosts
	for _, socket := range []string{"host", "socket"} {
		if d.Params[socket] != "" && d.Hosts != "" {
			return fmt.Errorf("a host and parameter %s: only one of them is allowed", socket)
		}
	}
	if err := checkHosts(p.hosts, d.Kind == Postgres); err != nil {
		return fmt.Errorf("%w; write %s", err, form)
	}
	g.shown = p.scheme + "://" + p.hosts + p.path
	return nil
}

// host matches a host with its port, both optional.
const host = `(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]*)(:[0-9]{1,5})?`

// checkHosts returns an error if one of hosts is no host. The error does not show it: it may be a
// password.
func checkHosts(hosts string, several bool) error {
	// Compiled here, because few starts of the command need it.
	one := regexp.MustCompile(`^` + host + `$`)
	list := strings.Split(hosts, ",")
	if len(list) > 1 && !several {
		return fmt.Errorf("%d hosts, and one is allowed", len(list))
	}
	for i, h := range list {
		if !one.MatchString(h) {
			return fmt.Errorf("host %d is neither host nor host:port", i+1)
		}
	}
	return nil
}

// tableName matches the name of a guard table: a plain name, with or without its schema.
const tableName = `^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`

// ParseGuard parses the address of a store. It opens nothing and sends no request. Its errors
// follow the rules of Parse.
func ParseGuard(raw string) (*Guard, error) {
	p, err := split(raw, GuardForms)
	if err != nil {
		return nil, err
	}
	s, ok := guardSchemes()[p.scheme]
	switch {
	case strings.HasPrefix(p.scheme, "redlock"):
		return nil, fmt.Errorf(
			"%s: is for locks; no single one of independent servers knows the newest token, so guard by another store",
			p.scheme)
	case !ok && !p.slashes:
		// Do not show it: "user:secret" looks like a scheme too.
		return nil, fmt.Errorf("no scheme that is known; an address begins with one of %s",
			beginnings(GuardForms()))
	case !ok:
		return nil, fmt.Errorf("unknown scheme %q; use one of %s", p.scheme,
			beginnings(GuardForms()))
	}
	if err := checkParts(p, s.params, s.noServer); err != nil {
		return nil, err
	}
	g := &Guard{Database: Database{Kind: s.kind}}
	if s.kind != "" {
		g.Database.Params = maps.Clone(p.params)
	}
	if table, ok := p.params["table"]; ok {
		if !regexp.MustCompile(tableName).MatchString(table) {
			return nil, errors.New(
				"parameter table is no plain name; allowed are letters, digits and _, also schema.table")
		}
		g.Database.Table = table
		delete(g.Database.Params, "table")
	}
	if err := s.parse(g, p, s.form); err != nil {
		return nil, err
	}
	return g, nil
}

// GuardForms returns the forms of addresses of stores, in alphabetical order, without synonyms.
func GuardForms() []string {
	var f []string
	for name, s := range guardSchemes() {
		if name != "postgresql" && name != "mariadb" {
			f = append(f, s.form)
		}
	}
	slices.Sort(f)
	return f
}

// GuardHelp describes the addresses that ParseGuard takes, as Help does for Parse.
func GuardHelp() string {
	forms, params := make(map[string]string), make(map[string]map[string]string)
	for name, s := range guardSchemes() {
		if name != "postgresql" && name != "mariadb" {
			forms[name], params[name] = s.form, s.params
		}
	}
	return describe(forms, params)
}
