//go:build unix

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/pghold"
)

// postgres is a primary and a standby, which take turns, and maybe a PgBouncer in front of them.
type postgres struct {
	run     *run
	program string
	servers [2]*postgresServer
	primary int     // the number of the server that is the primary
	pooler  *member // nil for none
	front   *link   // by which the pooler reaches the primary
	home    *testserver.Process
}

// postgresServer is one of the two.
type postgresServer struct {
	*member
	home *testserver.Process // its directory and its user: root may not run it
	feed *link               // by which it is followed
}

func (s *postgresServer) data() string { return filepath.Join(s.home.Dir, "data") }

const postgresUser, postgresDatabase = "holdfast", "postgres"

// start starts everything. It is one function because each step needs what those before it have
// started.
func (p *postgres) start(ctx context.Context) error {
	initdb, err := testserver.Find("initdb", "postgresql", "/usr/lib/postgresql/*/bin")
	if err != nil {
		return err
	}
	// Follow links: the program looks for its files beside itself.
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return err
	}
	p.program = filepath.Join(filepath.Dir(initdb), "postgres")
	for i := range p.servers {
		if p.servers[i], err = p.prepare("n" + strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, s := range p.servers {
		s.command = p.command(s, p.servers[1-i])
	}
	first := p.servers[0]
	if out, err := first.home.Command(initdb, "-D", first.data(), "-U", postgresUser, "-A",
		"trust", "--no-sync", "-E", "UTF8").CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	access := "host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n"
	if err := os.WriteFile(filepath.Join(first.data(), "pg_hba.conf"), []byte(access),
		0o600); err != nil {
		return err
	}
	if err := first.start(); err != nil {
		return err
	}
	if left := eventually(ctx, patience, first.silence); left != "" {
		return fmt.Errorf("%s: %s", first.name, left)
	}
	if err := p.follow(p.servers[1]); err != nil {
		return err
	}
	if p.run.config.Pooler {
		if err := p.startPooler(); err != nil {
			return err
		}
	}
	if err := p.run.ready(); err != nil {
		return err
	}
	return first.do(ctx, func(conn *pgx.Conn) error { return pghold.Migrate(ctx, conn) })
}

// prepare makes a server without data.
func (p *postgres) prepare(name string) (s *postgresServer, err error) {
	s = &postgresServer{member: &member{name: name,
		log: filepath.Join(p.run.config.Dir, name+".log")}}
	if s.addr, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.home, err = testserver.Prepare("postgres"); err != nil {
		return nil, err
	}
	s.feed, err = newLink("standby", s.member, 0)
	return s, err
}

// command returns how to run a server. It follows the other one if it is a standby.
func (p *postgres) command(s, other *postgresServer) func() *exec.Cmd {
	host, port, _ := net.SplitHostPort(s.addr)
	from, at, _ := net.SplitHostPort(other.feed.address())
	settings := []string{"listen_addresses=" + host, "port=" + port, "unix_socket_directories=",
		"max_connections=60", "shared_buffers=16MB", "wal_keep_size=256MB", "hot_standby=on",
		"wal_retrieve_retry_interval=200ms",
		"primary_conninfo=host=" + from + " port=" + at + " user=" + postgresUser,
		// The crash of a process loses nothing by that, and a slow disk is no fault here.
		"fsync=off"}
	if p.run.config.Persistence == Confirmed {
		settings = append(settings, "synchronous_standby_names=*", "synchronous_commit=on")
	} else {
		settings = append(settings, "synchronous_commit=off")
	}
	args := []string{"-D", s.data()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return func() *exec.Cmd { return s.home.Command(p.program, args...) }
}

// follow makes a server that does not run the standby of the primary, on a copy of its data.
func (p *postgres) follow(s *postgresServer) error {
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(p.servers[p.primary].addr)
	if out, err := s.home.Command(filepath.Join(filepath.Dir(p.program), "pg_basebackup"), "-D",
		s.data(), "-h", host, "-p", port, "-U", postgresUser, "-X", "stream", "-c", "fast",
		"--no-sync").CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644); err != nil {
		return err
	}
	return s.member.start()
}

// startPooler starts a PgBouncer in transaction mode. It reaches the primary by a link, which is
// moved to the new primary at a failover, as an operator moves an address.
func (p *postgres) startPooler() (err error) {
	path, err := testserver.Find("pgbouncer", "pgbouncer", "/usr/sbin")
	if err != nil {
		return err
	}
	if p.home, err = testserver.Prepare("postgres"); err != nil {
		return err
	}
	if p.front, err = newLink("pooler", (*postgresPrimary)(p), 0); err != nil {
		return err
	}
	p.pooler = &member{name: "pooler", log: filepath.Join(p.run.config.Dir, "pooler.log")}
	if p.pooler.addr, err = freeAddress(); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(p.front.address())
	ownHost, ownPort, _ := net.SplitHostPort(p.pooler.addr)
	// The client bounds its wait for a connection.
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%s user=%s
[pgbouncer]
pool_mode = transaction
default_pool_size = 8
server_login_retry = 1
server_round_robin = 1
auth_type = any
listen_addr = %s
listen_port = %s
unix_socket_dir =
`, postgresDatabase, host, port, postgresUser, ownHost, ownPort)
	file := filepath.Join(p.home.Dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	p.pooler.command = func() *exec.Cmd { return p.home.Command(path, file) }
	return p.pooler.start()
}

// postgresPrimary is the server of the two that is the primary.
type postgresPrimary postgres

func (p *postgresPrimary) label() string { return "primary" }
func (p *postgresPrimary) entry() string { return p.servers[p.primary].addr }

func (p *postgresPrimary) requests(from io.Reader) func(func() bool) ([]byte, error) {
	return whatever(from)
}

func (p *postgres) members() (all []*member) {
	for _, s := range p.servers {
		if s != nil {
			all = append(all, s.member)
		}
	}
	if p.pooler != nil {
		all = append(all, p.pooler)
	}
	return all
}

func (p *postgres) entries() []*member {
	if p.pooler != nil {
		return []*member{p.pooler}
	}
	return p.members()
}

func (p *postgres) url(addresses []string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=5", postgresUser,
		strings.Join(addresses, ","), postgresDatabase)
}

// do does something on a connection of its own.
func (s *postgresServer) do(ctx context.Context, f func(*pgx.Conn) error) error {
	return onPostgres(ctx, s.addr, f)
}

func onPostgres(ctx context.Context, address string, f func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", postgresUser,
		address, postgresDatabase))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(conn)
}

// count gives the number that a query asks for.
func count(ctx context.Context, address, query string) (n int, err error) {
	err = onPostgres(ctx, address, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(&n)
	})
	return n, err
}

// silence says what is wrong while the server does not answer.
func (s *postgresServer) silence() ([]string, error) {
	_, err := count(context.Background(), s.addr, "SELECT 1")
	return nil, err
}

// unready waits for the standby to have what the primary has, and for the pooler to reach it.
func (p *postgres) unready() ([]string, error) {
	ctx := context.Background()
	states := "('async', 'sync', 'quorum')"
	if p.run.config.Persistence == Confirmed {
		states = "('sync', 'quorum')"
	}
	n, err := count(ctx, p.servers[p.primary].addr, `SELECT count(*) FROM pg_stat_replication
		WHERE state = 'streaming' AND sync_state IN `+states)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return []string{"no standby follows " + p.servers[p.primary].name}, nil
	}
	if _, err := p.servers[1-p.primary].silence(); err != nil {
		return nil, err
	}
	if p.pooler == nil {
		return nil, nil
	}
	_, err = count(ctx, p.pooler.addr, "SELECT 1")
	return nil, err
}

func (p *postgres) leader() (*member, error) { return p.servers[p.primary].member, nil }

// brittle returns nothing, because no standby takes over by itself.
func (p *postgres) brittle() string { return "" }

func (p *postgres) left() (found []string, err error) {
	const live = `SELECT 'the lock ' || encode(key, 'escape') FROM holdfast.locks
			WHERE owner IS NOT NULL AND expires > clock_timestamp()
		UNION ALL SELECT 'the reader of ' || encode(key, 'escape') FROM holdfast.sharers
			WHERE expires > clock_timestamp()
		UNION ALL SELECT 'the waiter for ' || encode(key, 'escape') FROM holdfast.waiters
			WHERE until > clock_timestamp()`
	ctx := context.Background()
	err = p.servers[p.primary].do(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, live)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return found, err
}

func (p *postgres) stop() {
	stopAll(p.members())
	for _, s := range p.servers {
		if s != nil {
			s.feed.close()
			s.home.Remove()
		}
	}
	if p.front != nil {
		p.front.close()
	}
	if p.home != nil {
		p.home.Remove()
	}
}

// promote makes the standby take over, whatever the primary does.
func (p *postgres) promote() error {
	ctx := context.Background()
	to := p.servers[1-p.primary]
	err := to.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT pg_promote(true, 120)")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s does not take over: %w", to.name, err)
	}
	p.primary = 1 - p.primary
	if p.front != nil {
		p.front.lead()
	}
	return nil
}

// failOverPostgres makes the standby take over from a primary that was killed, that stands still,
// or that the standby cannot reach. In the last two cases there are two primaries for a while. Then
// the former one starts again as the standby of the new one.
func (n *nemesis) failOverPostgres() {
	p := n.run.system.(*postgres)
	if err := n.run.ready(); err != nil {
		n.run.fail(err)
		return
	}
	breaks := ""
	if n.run.config.Persistence != Confirmed {
		breaks = takeover
	}
	former := p.servers[p.primary]
	how := []string{"killed", "frozen", "cut off"}[n.draw.IntN(3)]
	over := n.during(history.Record{Name: "failover, primary " + how,
		Target: joined(p.members()), Breaks: breaks, Forget: breaks != ""})
	defer over()
	if how == "cut off" || breaks != "" && n.draw.IntN(2) == 0 {
		// At times this is so long that requests that wait for the standby are given up.
		former.feed.set(way{hold: true}, way{hold: true})
		time.Sleep(n.between(n.run.config.TTL/10, 4*n.run.config.TTL))
	}
	switch how {
	case "killed":
		n.run.crashed(former.kill())
	case "frozen":
		former.process.freeze()
	}
	if err := p.promote(); err != nil {
		n.run.fail(err)
	}
	time.Sleep(n.while())
	if how == "frozen" {
		former.process.thaw()
		time.Sleep(n.while())
	}
	if how != "killed" {
		n.run.crashed(former.kill())
	}
	former.feed.set(way{}, way{})
	if err := p.follow(former); err != nil {
		n.run.fail(err)
		return
	}
	if err := n.run.ready(); err != nil {
		n.run.fail(err)
	}
}

var postgresFaults = []fault{
	{name: "failover", weight: 8, do: (*nemesis).failOverPostgres},
	{name: "replication held", weight: 3, do: func(n *nemesis) {
		p := n.run.system.(*postgres)
		over := n.last("replication held", namesOf(p.members()), "")
		feed := p.servers[p.primary].feed
		feed.set(way{hold: true}, way{hold: true})
		time.Sleep(n.while())
		feed.set(way{}, way{})
		over()
	}},
	{name: "connections ended", weight: 2, do: func(n *nemesis) {
		n.backends("connections ended", "pg_terminate_backend")
	}},
	{name: "statements cancelled", weight: 2, do: func(n *nemesis) {
		n.backends("statements cancelled", "pg_cancel_backend")
	}},
}

// backends calls a function for each process of the primary that serves a client.
func (n *nemesis) backends(name, function string) {
	p := n.run.system.(*postgres)
	over := n.last(name, namesOf(p.members()), "")
	defer over()
	if _, err := count(context.Background(), p.servers[p.primary].addr, `SELECT count(`+function+
		`(pid)) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`); err != nil {
		n.run.fail(errors.Join(errors.New(name), err))
	}
}
