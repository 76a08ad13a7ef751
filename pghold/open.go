package pghold

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
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
// or the same with postgresql. Characters that have a meaning there are escaped with %, also '#',
// every '@' but that in front of the hosts, and the slashes of a socket's directory in place of a
// host (%2Frun). A '+' is a '+'. One login is for all hosts.
//
// Parameters are those of libpq that pgx knows (sslmode, sslrootcert, sslcert, sslkey, passfile,
// connect_timeout, host, port, and so on), the settings of a session, pool_max_conns and the others
// of pgxpool, and of this package create=true, which makes the tables as [WithMigration] does, and
// durable=always, which is [WithDurable]. Each may be given once, and has a value. It prevails over
// what stands in its place in front of the '?'. Any other name goes to the server as a setting, and
// the server refuses one that it does not know; Open refuses one that begins with ssl, as ssl=true.
//
// What the URL leaves out comes from the variables PGHOST, PGUSER, PGPASSWORD and so on, as far as
// pgx knows them, and from the file .pgpass. Open refuses PGHOSTADDR, for which psql would leave
// the hosts of the URL. Of several hosts, those without a port have 5432, as with psql: PGPORT is
// for a host alone, and for those of the parameter host. Open uses one that takes writes, unless
// target_session_attrs in the URL says otherwise. All get the same password, which in .pgpass is
// that of the first.
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

// configure sets up the pool of Open.
func configure(config *pgxpool.Config, parameters url.Values) {
	conn := config.ConnConfig
	if _, named := conn.RuntimeParams["application_name"]; !named {
		conn.RuntimeParams["application_name"] = "holdfast"
	}
	// With "any" pgx sets no function either.
	if several(conn) && conn.ValidateConnect == nil && !parameters.Has("target_session_attrs") {
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
