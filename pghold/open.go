package pghold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// idle is how long a connection may be unused before it is tried out, which is one more round trip.
const idle = 10 * time.Second

// Open returns a Backend on the database that the URL names, and connects to it. ctx bounds that,
// not the Backend's life. The caller closes the Backend. The form of a URL is that of libpq:
//
//	postgres://[user[:password]@][host[:port]][,host[:port]...][/database][?parameter=value&...]
//
// or the same with postgresql. Parameters are those of libpq that pgx knows (sslmode, sslrootcert,
// sslcert, sslkey, passfile, connect_timeout, host for the directory of a socket, and so on), the
// settings of a session, pool_max_conns and the others of pgxpool, and of this package create=true,
// which makes the tables as [WithMigration] does, and durable=always, which is [WithDurable]. What
// the URL leaves out comes from the variables PGHOST, PGUSER, PGPASSWORD and so on, and from the
// file .pgpass. Of several hosts it uses one that takes writes, unless target_session_attrs says
// otherwise.
//
// Open fails with ErrInvalid if a part of the URL is wrong or an option is nil. It fails with
// ErrUnavailable, in a *driver.Error, if the server cannot be reached or used: it refuses the
// login, the database does not exist, or the tables are missing ([ErrMissing]). No error contains a
// password or the user of the URL.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	c, err := configOf(options)
	if err != nil {
		return nil, err
	}
	pool, err := parse(url, &c)
	if err != nil {
		return nil, fmt.Errorf("pghold: %w", &driver.Error{Invalid: true, Err: err})
	}
	links := &links{dial: pool.ConnConfig.DialFunc}
	pool.ConnConfig.DialFunc = links.connect
	if c.notices == nil {
		c.notices = pool.ConnConfig.Copy()
	}
	// The life of the pool is not that of ctx.
	db, err := pgxpool.NewWithConfig(context.Background(), pool)
	if err != nil {
		return nil, fmt.Errorf("pghold: %w", &driver.Error{Err: err})
	}
	d := newPgxDatabase(db, links)
	b := newBackend(d, nameOf(pool.ConnConfig), c)
	if c.lazy {
		return b, nil
	}
	if err := b.begin(ctx, d); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Validate returns nil for a URL that [Open] takes, and otherwise the error with which Open would
// fail. It does not connect, but it reads the files that the URL names.
func Validate(url string) error {
	if _, err := parse(url, new(config)); err != nil {
		return fmt.Errorf("pghold: %w", &driver.Error{Invalid: true, Err: err})
	}
	return nil
}

// begin makes the tables if it is told to, and sees whether they are there.
func (b *Backend) begin(ctx context.Context, d *pgxDatabase) error {
	if b.config.migrate && !b.config.readOnly {
		if err := Migrate(ctx, d.pool); err != nil {
			return b.inWords(b.discreet(err))
		}
	}
	_, err := aside(ctx, b, false, func(ctx context.Context) (struct{}, error) {
		if err := d.greet(ctx); err != nil {
			return struct{}{}, b.failure(err, false)
		}
		return struct{}{}, b.matches(ctx)
	})
	return b.inWords(err)
}

// matches fails if the tables are missing, or of another version than this package. It asks until
// it has found them in order once, which costs one round trip before the first acquisition.
// Functions of an older version may keep less than is promised, and not tell.
func (b *Backend) matches(ctx context.Context) error {
	if b.matched.Load() {
		return nil
	}
	var version int64
	ctx = sending(ctx, func() bool { return true }) // this is not yet what was asked for
	err := b.query(ctx, false, "SELECT holdfast.version()", nil,
		func(scan func(...any) error) error { return scan(&version) })
	if err != nil {
		return err
	}
	if version != schemaVersion {
		return &driver.Error{Node: b.name, Permanent: true, Err: fmt.Errorf(
			"%w: they are of version %d, not %d", ErrMissing, version, schemaVersion)}
	}
	b.matched.Store(true)
	return nil
}

// inWords puts the package in front of an error, if there is one.
func (b *Backend) inWords(err error) error {
	if err == nil {
		return nil
	}
	if e := (*driver.Error)(nil); !errors.As(err, &e) || e.Node == "" {
		return err
	}
	return fmt.Errorf("pghold: %w", err)
}

// parse reads a URL. If a character was not escaped or the '@' was forgotten, any part of it may be
// a piece of a password. So errors quote nothing of it, except what pgx says of its parameters.
func parse(raw string, c *config) (*pgxpool.Config, error) {
	u, query, err := split(raw)
	if err != nil {
		return nil, err
	}
	if err := ownParameters(query, c); err != nil {
		return nil, err
	}
	u.RawQuery = query.Encode()
	if u.User == nil && u.Host == "" && u.Path == "" {
		// Otherwise String leaves out the "//". Then pgx takes all for keywords and values: it
		// connects to its default server, and sends the parameters there.
		u.Path = "/"
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		cause := errors.Unwrap(err) // without the URL
		if parse := (*pgconn.ParseConfigError)(nil); errors.As(err, &parse) {
			cause = parse.Unwrap()
		}
		if cause == nil {
			cause = errors.New("pgx does not take this")
		}
		return nil, fmt.Errorf("URL, a PG variable or a service file: %w", cause)
	}
	if err := checkFiles(config, query); err != nil {
		return nil, err
	}
	if c.user = query.Get("user"); c.user == "" && u.User != nil {
		c.user = u.User.Username()
	}
	configure(config, query)
	return config, nil
}

// checkFiles fails if a file cannot be read and pgx would go on without it: without a password, or
// without verifying the server.
func checkFiles(config *pgxpool.Config, query url.Values) error {
	if path := query.Get("passfile"); path != "" {
		if _, err := os.ReadFile(path); err != nil {
			return fmt.Errorf("URL: passfile: %w", err)
		}
	}
	first := &pgconn.FallbackConfig{Host: config.ConnConfig.Host, Port: config.ConnConfig.Port,
		TLSConfig: config.ConnConfig.TLSConfig}
	if query.Get("sslrootcert") != "" && (verifiesNobody(first) ||
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

// split takes a URL apart.
func split(raw string) (*url.URL, url.Values, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return nil, nil, errors.New("URL: must begin with postgres:// or postgresql://")
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return nil, nil, errors.New("URL: has an '@' behind '/', '?' or '#': " +
			"in user name, password, path and parameters escape these with %")
	}
	login, list, tail := cut(rest)
	names, ports, err := hosts(list)
	if err != nil {
		return nil, nil, err
	}
	asParameters := apart(names)
	if asParameters {
		list = ""
	}
	u, err := url.Parse(scheme + "://" + login + list + tail)
	if err != nil || u.Fragment != "" {
		return nil, nil, errors.New("URL: user name, password, host, path or parameters are " +
			"not well formed: escape special characters with %")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New(
			"URL: parameters are not well formed: escape special characters with %")
	}
	if asParameters {
		setDefault(query, "host", names)
		setDefault(query, "port", ports)
	}
	return u, query, nil
}

// setDefault adds a parameter with a list as its value, if there is one and the URL does not have
// the parameter itself.
func setDefault(query url.Values, name string, list []string) {
	if list != nil && !query.Has(name) {
		query.Set(name, strings.Join(list, ","))
	}
}

// apart reports whether pgx has to be given the hosts as parameters: url.Parse takes only one port,
// and pgx takes no address with a zone that has no port.
func apart(names []string) bool {
	return len(names) > 1 || strings.Contains(names[0], ":") && strings.Contains(names[0], "%")
}

// cut takes apart what follows "://". The login ends with its '@', if there is one.
func cut(rest string) (login, hosts, tail string) {
	hosts = rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, tail = rest[:i], rest[i:]
	}
	i := strings.LastIndexByte(hosts, '@') + 1
	return hosts[:i], hosts[i:], tail
}

// hosts takes a list of hosts apart, as libpq does: if any has a port, the others have 5432. pgx
// would quote what is not a port, refuse a list whose last host has none, and use the port of one
// host for another. ports is nil if no host has one.
func hosts(list string) (names, ports []string, err error) {
	all := strings.Split(list, ",")
	named := false
	for i, host := range all {
		name, port, ok := separate(host)
		named = named || port != ""
		port = cmp.Or(port, "5432")
		n, err := strconv.ParseUint(port, 10, 16)
		switch {
		case !ok:
			return nil, nil, fmt.Errorf("URL: host %d is not well formed: write host:port, or "+
				"[IPv6]:port with nothing but an IPv6 address in brackets", i+1)
		case name == "" && len(all) > 1:
			return nil, nil, fmt.Errorf("URL: host %d is empty", i+1)
		case err != nil || n == 0:
			return nil, nil, fmt.Errorf("URL: host %d has a port that is not 1 to 65535; if it is a "+
				"password, an '@' is missing behind it", i+1)
		}
		names, ports = append(names, name), append(ports, port)
	}
	if !named {
		ports = nil
	}
	return names, ports, nil
}

// separate takes host, host:port, an IPv6 address, [IPv6] or [IPv6]:port apart. What is in brackets
// must be an IPv6 address: it may be a login without its '@', which must not be looked up as a host
// and be shown in the error about that.
func separate(host string) (name, port string, ok bool) {
	if inside, bracketed := strings.CutPrefix(host, "["); bracketed {
		name, rest, closed := strings.Cut(inside, "]")
		name = strings.Replace(name, "%25", "%", 1) // before a zone; URLs have it so
		port, behind := strings.CutPrefix(rest, ":")
		return name, port, closed && isIPv6(name) && (rest == "" || behind) &&
			!strings.Contains(port, ":")
	}
	if isIPv6(host) {
		return host, "", true
	}
	name, port, _ = strings.Cut(host, ":")
	return name, port, !strings.ContainsAny(host, "[]") && !strings.Contains(port, ":")
}

func isIPv6(name string) bool {
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Is6()
}

// ownParameters takes out of the query what pgx does not know.
func ownParameters(query url.Values, c *config) error {
	switch create := query.Get("create"); {
	case create == "true":
		c.migrate = true
	case query.Has("create") && create != "false":
		return errors.New("URL: create: must be true or false")
	}
	switch {
	case query.Get("durable") == "always":
		c.durable = true
	case query.Has("durable"):
		return errors.New("URL: durable: must be always, or left out")
	}
	query.Del("create")
	query.Del("durable")
	return nil
}

// configure sets up the pool of Open.
func configure(config *pgxpool.Config, query url.Values) {
	conn := config.ConnConfig
	if _, named := conn.RuntimeParams["application_name"]; !named {
		conn.RuntimeParams["application_name"] = "holdfast"
	}
	// With "any" pgx sets no function either.
	if several(conn) && conn.ValidateConnect == nil && !query.Has("target_session_attrs") {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = patience
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > idle
	}
}

// several reports whether there is more than one server.
func several(config *pgx.ConnConfig) bool {
	return slices.ContainsFunc(config.Fallbacks, func(other *pgconn.FallbackConfig) bool {
		return other.Host != config.Host || other.Port != config.Port // or it is without encryption
	})
}
