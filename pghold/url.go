package pghold

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// parse reads a URL. If a character was not escaped or the '@' was forgotten, any part of it may be
// a piece of a password. So errors quote nothing of it, except what pgx says of its parameters.
func parse(raw string, c *config) (*pgxpool.Config, error) {
	parameters, err := read(raw)
	if err != nil {
		return nil, err
	}
	if err := ownParameters(parameters, c); err != nil {
		return nil, err
	}
	config, err := asPgx(parameters)
	if err != nil {
		return nil, err
	}
	if config.ConnConfig.Database == "" {
		// The server takes the user for the name of the database. libpq looks for that in .pgpass,
		// and pgx for no name. It is left to the server because pgx tells the name in errors.
		parameters.Set("database", config.ConnConfig.User)
		named, err := asPgx(parameters)
		if err != nil {
			return nil, err
		}
		config.ConnConfig.Password = named.ConnConfig.Password
	}
	if config.HealthCheckPeriod <= 0 { // pgxpool would panic
		return nil, errors.New(
			"URL or service file: pool_health_check_period: must be longer than 0s")
	}
	if err := checkTLS(config, parameters); err != nil {
		return nil, err
	}
	if path := parameters.Get("passfile"); path != "" {
		if _, err := os.ReadFile(path); err != nil { // pgx would go on without a password
			return nil, fmt.Errorf("URL: passfile: %w", err)
		}
	}
	c.user = parameters.Get("user")
	configure(config, parameters)
	return config, nil
}

// asPgx has pgx read the parameters. All that it would take apart by itself is left out, because it
// does that differently.
func asPgx(parameters url.Values) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig("postgres:///?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("URL, a PG variable or a service file: %w", withoutURL(err))
	}
	return config, nil
}

// withoutURL returns what pgx says of a value, and of which. If it gives no cause, it may quote the
// value itself, which then is left out.
func withoutURL(err error) error {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) || parse.Unwrap() == nil {
		return errors.New("pgx does not take the value of target_session_attrs, " +
			"default_query_exec_mode or pool_max_conns")
	}
	parse.ConnString = ""
	cause := parse.Unwrap()
	what := strings.TrimPrefix(parse.Error(), "cannot parse ``: ")
	return fmt.Errorf("%s: %w", strings.TrimSuffix(what, " ("+cause.Error()+")"), cause)
}

// read takes a URL apart as libpq does, and returns all of it as parameters. A parameter prevails
// over what stands in its place in front of the '?'.
func read(raw string) (url.Values, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return nil, errors.New("URL: must begin with postgres:// or postgresql://")
	}
	front, query, _ := strings.Cut(rest, "?")
	front, path, _ := strings.Cut(front, "/")
	if hasUnescaped(front, path+query) {
		return nil, errors.New("URL: has a '#', a control character, a second '@', or an '@' " +
			"behind '/' or '?': in user name, password, path and parameters escape these with %")
	}
	at := strings.IndexByte(front, '@') + 1
	user, password, _ := strings.Cut(strings.TrimSuffix(front[:at], "@"), ":")
	user, ok1 := unescape(user)
	password, ok2 := unescape(password)
	path, ok3 := unescape(path)
	if !ok1 || !ok2 || !ok3 {
		return nil, errors.New("URL: user name, password or path is not well formed: " +
			"escape special characters with %")
	}
	names, ports, err := hosts(front[at:])
	if err != nil {
		return nil, err
	}
	parameters, err := readParameters(query)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"user": user, "password": password,
		"database": path, "host": names, "port": ports} {
		if value != "" && !parameters.Has(name) {
			parameters.Set(name, value)
		}
	}
	return parameters, checkServers(parameters)
}

// hasUnescaped reports whether a URL has a character that libpq may take for another part of it.
// front is what stands in front of the path, behind is the rest.
func hasUnescaped(front, behind string) bool {
	return strings.Contains(behind, "@") || strings.Count(front, "@") > 1 ||
		strings.Contains(front+behind, "#") || strings.ContainsFunc(front+behind, unicode.IsControl)
}

// checkServers fails if pgx would connect to what is not named: to this machine where a host of the
// URL is empty, or to the first port where the number of ports is another than that of hosts. And
// it fails if libpq would leave the hosts for an address that pgx does not know.
func checkServers(parameters url.Values) error {
	names := strings.Split(cmp.Or(parameters.Get("host"), os.Getenv("PGHOST")), ",")
	ports := strings.Split(cmp.Or(parameters.Get("port"), os.Getenv("PGPORT")), ",")
	empty := slices.Index(names, "")
	serviceFile := cmp.Or(parameters.Get("service"), os.Getenv("PGSERVICE")) != ""
	switch {
	case os.Getenv("PGHOSTADDR") != "":
		return errors.New("PGHOSTADDR: is not known: unset it, and write the address as the host")
	case empty >= 0 && parameters.Has("host"):
		return fmt.Errorf("URL: host %d is empty", empty+1)
	case serviceFile && !(parameters.Has("host") && parameters.Has("port")):
		return nil // the file prevails over the variables
	case len(ports) > 1 && len(ports) != len(names):
		return fmt.Errorf("URL, PGHOST or PGPORT: %d ports for %d hosts", len(ports), len(names))
	}
	return nil
}

// readParameters reads what follows '?'.
func readParameters(query string) (url.Values, error) {
	parameters := url.Values{}
	i := 0
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		i++
		name, value, _ := strings.Cut(pair, "=")
		name, ok1 := unescape(name)
		value, ok2 := unescape(value)
		if name == "dbname" {
			name = "database" // as pgx calls it
		}
		switch {
		case !ok1 || !ok2:
			return nil, fmt.Errorf(
				"URL: parameter %d is not well formed: escape special characters with %%", i)
		case name == "" || value == "":
			return nil, fmt.Errorf("URL: parameter %d has no name or no value: leave it out", i)
		case parameters.Has(name):
			return nil, fmt.Errorf("URL: parameter %d is given twice", i)
		}
		parameters.Set(name, value)
	}
	return parameters, nil
}

// unescape reads characters that are written as % and two hex digits. A '+' stays what it is.
func unescape(s string) (string, bool) {
	text, err := url.PathUnescape(s)
	return text, err == nil && !strings.Contains(text, "\x00") // that would end it for the server
}

// hosts takes a list of hosts apart. As with libpq, those without a port have 5432, and only a host
// alone is left to PGPORT.
func hosts(list string) (names, ports string, err error) {
	var allNames, allPorts []string
	all := strings.Split(list, ",")
	for i, host := range all {
		name, port, ok := separate(host)
		if len(all) > 1 {
			port = cmp.Or(port, "5432")
		}
		n, err := strconv.ParseUint(cmp.Or(port, "5432"), 10, 16)
		switch {
		case !ok:
			return "", "", fmt.Errorf("URL: host %d is not well formed: write host:port, or "+
				"[IPv6]:port with nothing but an IPv6 address in brackets", i+1)
		case err != nil || n == 0:
			return "", "", fmt.Errorf("URL: host %d has a port that is not 1 to 65535; if it is a "+
				"password, an '@' is missing behind it", i+1)
		}
		allNames, allPorts = append(allNames, name), append(allPorts, port)
	}
	return strings.Join(allNames, ","), strings.Join(allPorts, ","), nil
}

// separate takes host, host:port, an IPv6 address, [IPv6] or [IPv6]:port apart. What is in brackets
// must be an IPv6 address, and no name has an '@' or a ':': it may be a login without its '@',
// which must not be looked up as a host and be shown in the error about that.
func separate(host string) (name, port string, ok bool) {
	if inside, bracketed := strings.CutPrefix(host, "["); bracketed {
		address, rest, closed := strings.Cut(inside, "]")
		port, behind := strings.CutPrefix(rest, ":")
		name, ok := ipv6(address)
		return name, port, closed && ok && (rest == "" || behind) && !strings.Contains(port, ":")
	}
	if name, ok := ipv6(host); ok {
		return name, "", true
	}
	name, port, _ = strings.Cut(host, ":")
	name, ok = unescape(name)
	return name, port, ok && !strings.ContainsAny(name, "@:[],") && !strings.Contains(port, ":")
}

// ipv6 reads an IPv6 address. In URLs, the '%' in front of a zone is %25. It may be a '%' itself if
// no two hex digits follow.
func ipv6(s string) (string, bool) {
	if text, ok := unescape(s); ok {
		s = text
	}
	ip, err := netip.ParseAddr(s)
	return s, err == nil && ip.Is6() && !strings.Contains(s, ",")
}

// ownParameters takes out of the parameters what pgx does not know.
func ownParameters(parameters url.Values, c *config) error {
	create, durable := parameters.Get("create"), parameters.Get("durable")
	switch {
	case create != "" && create != "true" && create != "false":
		return errors.New("URL: create: must be true or false")
	case durable != "" && durable != "always":
		return errors.New("URL: durable: must be always, or left out")
	}
	c.migrate = c.migrate || create == "true"
	c.durable = c.durable || durable == "always"
	parameters.Del("create")
	parameters.Del("durable")
	return nil
}

// checkTLS fails if the URL asks for TLS, and pgx would go on without it, or without verifying the
// server.
func checkTLS(config *pgxpool.Config, parameters url.Values) error {
	for name := range config.ConnConfig.RuntimeParams {
		// No session may set any of these, so somebody else's parameter is meant, as ssl=true.
		if strings.HasPrefix(strings.ToLower(name), "ssl") {
			return fmt.Errorf("URL or service file: %s is not known: for TLS write "+
				"sslmode=verify-full", name)
		}
	}
	first := &pgconn.FallbackConfig{Host: config.ConnConfig.Host, Port: config.ConnConfig.Port,
		TLSConfig: config.ConnConfig.TLSConfig}
	if parameters.Has("sslrootcert") && (verifiesNobody(first) ||
		slices.ContainsFunc(config.ConnConfig.Fallbacks, verifiesNobody)) {
		return errors.New(
			"URL: sslrootcert is given, and sslmode verifies nobody: write sslmode=verify-full")
	}
	return nil
}

// verifiesNobody reports whether any other server would be accepted in place of this one. A socket
// needs no check, because it is a file with an owner.
func verifiesNobody(server *pgconn.FallbackConfig) bool {
	network, _ := pgconn.NetworkAddress(server.Host, server.Port)
	return network != "unix" && (server.TLSConfig == nil || server.TLSConfig.InsecureSkipVerify &&
		server.TLSConfig.VerifyPeerCertificate == nil) // which is that of verify-ca
}
