package pghold

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// Presence is how long a waiter counts as present after it last asked. If its TTL is shorter, it
// counts for that time. A waiter asks about three times in that span, so a lost notice costs a
// second.
const Presence = 3 * time.Second

// Backend keeps locks in a PostgreSQL database. It implements driver.Backend, driver.Notifier,
// driver.Inspector, driver.Checker, driver.Sharer, driver.Guarder, driver.Member, driver.Identifier
// and driver.Versioner, and is safe for concurrent use.
type Backend struct {
	db     database
	name   string // of the server, for errors
	config config
	id     string // in the channel of its notices

	life  context.Context // ends with Close
	end   context.CancelFunc
	close func() error

	guard   atomic.Int64               // a time.Duration; 0 is off
	want    atomic.Pointer[driver.Set] // nil if it does not matter
	wrote   atomic.Bool                // the server has taken a write
	matched atomic.Bool                // the tables are those of this package
	version atomic.Pointer[string]

	line      line
	doubts    doubts
	listeners listeners
	channel   channel
}

// Option sets an option of [New], [NewSQL] and [Open].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// config is what options set.
type config struct {
	readOnly bool
	durable  bool
	migrate  bool
	lazy     bool
	quiet    bool
	notices  *pgx.ConnConfig
	user     string // of the URL, which errors do not show
	presence time.Duration
}

// WithReadOnly has the Backend change nothing: Inspect, List, Check, Identity and Version work, and
// everything else fails with [ErrReadOnly], as ErrUnavailable. It is for tools that look at locks,
// and for a user who may only SELECT. Default: locks can be acquired.
func WithReadOnly() Option { return option(func(c *config) { c.readOnly = true }) }

// WithDurable exempts the server from the quarantine of a restart guard (see driver.Guarder). With
// it the operator says that the server has never lost anything it had answered: it has always run
// with fsync on, no standby has taken over that had not confirmed every commit, and its data were
// never replaced by an older copy. Default: every restart and takeover counts.
func WithDurable() Option { return option(func(c *config) { c.durable = true }) }

// WithNotices has the Backend listen for grants over a connection of its own with this
// configuration. It is for a pool that goes through PgBouncer or another pooler: notices need a
// connection to the server itself. Without one a waiter learns of its grant when it next asks,
// which it does once a second. Default: the configuration of the pool; for a *sql.DB no notices.
func WithNotices(c *pgx.ConnConfig) Option {
	return option(func(g *config) {
		if c != nil {
			g.notices = c.Copy()
		}
	})
}

// WithoutNotices has the Backend open no connection to listen for grants. Default: it opens one
// when a claim first waits while somebody has called Notify.
func WithoutNotices() Option { return option(func(c *config) { c.quiet = true }) }

// WithMigration has [Open] make the tables by [Migrate] before anything else. The parameter
// create=true of a URL does the same. New and NewSQL ignore it. Default: they have to be there.
func WithMigration() Option { return option(func(c *config) { c.migrate = true }) }

// WithoutConnecting has [Open] return without connecting. An error of the server then shows in the
// first call that needs it, and tables of another version ([ErrMissing]) in the first acquisition.
// New and NewSQL never connect. Default: Open connects.
func WithoutConnecting() Option { return option(func(c *config) { c.lazy = true }) }

// New returns a Backend over pool. The application may use the pool for other things too. New does
// not connect, and the Backend's Close leaves the pool open. The first acquisition looks at the
// version of the tables, and fails with [ErrMissing] if it is another one. The Backend prepares
// statements if the pool's DefaultQueryExecMode does, which is faster, until it finds a pooler that
// cannot do it. New fails with ErrInvalid of package driver if pool or an option is nil.
func New(pool *pgxpool.Pool, options ...Option) (*Backend, error) {
	if pool == nil {
		return nil, refuse("pool is nil: make one with pgxpool.New")
	}
	c, err := configOf(options)
	if err != nil {
		return nil, err
	}
	if c.notices == nil {
		c.notices = pool.Config().ConnConfig
	}
	return newBackend(newPgxDatabase(pool, nil), nameOf(pool.Config().ConnConfig), c), nil
}

// NewSQL is New for a database/sql pool, with the driver of pgx or with lib/pq. It has no notices
// unless [WithNotices] says how to get them. If the driver prepares statements by itself, a pooler
// in transaction mode has to support that. The driver of pgx does so unless its
// default_query_exec_mode is exec or simple_protocol. NewSQL fails as New does.
//
// Where lib/pq 1.10 has sent a statement it waits for the server, whatever the context says. So
// after a server has frozen or was cut off, later requests for the same key fail, each at the end
// of its context, until the server answers or the system gives up the connection, which may take
// many minutes. Without a connect_timeout, each request that needs a new connection keeps a
// goroutine until then, too. The driver of pgx gives up after five seconds.
func NewSQL(db *sql.DB, options ...Option) (*Backend, error) {
	if db == nil {
		return nil, refuse("db is nil: open one with sql.Open")
	}
	c, err := configOf(options)
	if err != nil {
		return nil, err
	}
	return newBackend(sqlDatabase{db}, "", c), nil
}

func configOf(options []Option) (c config, err error) {
	c.presence = Presence
	for i, o := range options {
		if o == nil {
			return c, refuse("option %d is nil: leave it out", i+1)
		}
		o.apply(&c)
	}
	return c, nil
}

func newBackend(db database, name string, c config) *Backend {
	b := &Backend{db: db, name: name, config: c, id: strings.ToLower(rand.Text())}
	b.life, b.end = context.WithCancel(context.Background())
	b.close = sync.OnceValue(func() error {
		b.end()
		b.channel.stop()
		b.db.close()
		return nil
	})
	return b
}

// nameOf names a server as its operator would.
func nameOf(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return c.Host
	}
	return fmt.Sprintf("%s:%d", c.Host, c.Port)
}

// Close ends what is under way, and closes the pool if Open made it. Keys that are held stay held
// until their TTLs are over. Later calls fail with ErrUnavailable. So do calls under way, or with
// ErrUnknown if they were sent. Closing twice is safe. The error is always nil.
func (b *Backend) Close() error { return b.close() }

// ready returns an error if a call cannot be made at all.
func (b *Backend) ready(ctx context.Context) error {
	if b.life.Err() != nil {
		return &driver.Error{Permanent: true, Err: errClosed}
	}
	if err := ctx.Err(); err != nil {
		return &driver.Error{Err: err}
	}
	return nil
}

// writes returns an error if the Backend may only read.
func (b *Backend) writes() error {
	if b.config.readOnly {
		return &driver.Error{Permanent: true, Err: ErrReadOnly}
	}
	return nil
}

// query runs a statement and turns errors into the driver's.
func (b *Backend) query(ctx context.Context, effect bool, statement string, args []any,
	row func(scan func(...any) error) error) error {
	sent, err := b.db.query(ctx, statement, args, row)
	switch {
	case err == nil:
		if effect {
			b.wrote.Store(true)
		}
		return nil
	case b.life.Err() != nil:
		return &driver.Error{Node: b.name, Permanent: true, Maybe: sent && effect, Err: errClosed}
	}
	return b.failure(err, sent && effect)
}

// maxOwner bounds owner values, because they go through a NOTIFY, whose text is bounded.
const maxOwner = 1024

// maxExact bounds tokens and tickets: they have to stay exact in JSON.
const maxExact = 1 << 53

// validate checks what the kernel promises of a claim.
func validate(claim *driver.Claim) error {
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refuse("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case claim.Owner == "" || len(claim.Owner) > maxOwner:
		return refuse("owner value of %d bytes: must have 1 to %d", len(claim.Owner), maxOwner)
	case claim.TTL < time.Millisecond || claim.TTL > driver.MaxTTL:
		return refuse("TTL %v: must be %v to %v", claim.TTL, time.Millisecond, driver.MaxTTL)
	case claim.Token >= maxExact || claim.Block >= maxExact ||
		uint64(claim.Token)+claim.Block >= maxExact:
		return refuse("token %d with block %d: must be less than 2^53", claim.Token, claim.Block)
	case claim.Ticket >= maxExact:
		return refuse("ticket %d: must be less than 2^53", claim.Ticket)
	}
	return nil
}

// microseconds is a span as the functions take it, rounded up: a lease there must not end before
// the client's.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func span(microseconds int64) time.Duration {
	return time.Duration(max(0, microseconds)) * time.Microsecond
}

// Shares implements driver.Sharer: it returns true.
func (b *Backend) Shares() bool { return true }

var _ interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Checker
	driver.Sharer
	driver.Guarder
	driver.Identifier
	driver.Member
	driver.Versioner
} = (*Backend)(nil)
