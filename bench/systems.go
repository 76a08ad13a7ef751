package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cirello.io/pglock"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/pghold"
	"github.com/holdfast-go/holdfast/zkhold"
)

// The drivers on etcd, PostgreSQL and ZooKeeper, beside etcdMutex and advisory.
const (
	oursEtcd      = "holdfast-etcd"
	oursEtcdTurns = "holdfast-etcd-1024" // with up to 1024 turns in memory before it asks
	oursPostgres  = "holdfast-postgres"
	oursZooKeeper = "holdfast-zookeeper"
	twoTxns       = "two-txns"      // no lock: a bare Txn that puts a key, and one that deletes it
	twoUpdates    = "two-updates"   // no lock: two updates of one row
	listenNotify  = "listen-notify" // a row that is taken and given back, and NOTIFY for the next
	pgLock        = "pglock"        // cirello.io/pglock, with its default settings
	zkLock        = "zookeeper"     // the recipe of the client library
)

// The drivers by the system that they need.
var (
	onEtcd      = []string{etcdMutex, oursEtcd, oursEtcdTurns, twoTxns}
	onPostgres  = []string{advisory, oursPostgres, twoUpdates, listenNotify, pgLock}
	onZooKeeper = []string{oursZooKeeper, zkLock}
)

// systems returns the scenarios on etcd, PostgreSQL and ZooKeeper. All of them sync to disk before
// they answer.
func systems(p plan) []*scenario {
	pair := func(system, floor string, warm int, goals []goal, drivers ...string) *scenario {
		return &scenario{
			name:    system + "-latency",
			title:   system + ": uncontended acquire and release, one goroutine",
			drivers: drivers, floor: floor, measure: pairs(load{1, warm, 0}),
			metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"pairs", "/s", 1, 0},
				clientTime},
			goals: goals,
		}
	}
	handover := func(system, floor string, goals []goal, drivers ...string) *scenario {
		return &scenario{
			name:    system + "-handover",
			title:   system + ": from the call of release to the next holder, in another process",
			drivers: drivers, floor: floor, measure: handovers, metrics: handoverTimes,
			goals: goals,
		}
	}
	contended := func(system, ours, peer string, least float64, more ...string) *scenario {
		return &scenario{
			name: system + "-contended",
			title: fmt.Sprintf("%s: one key, one process, %d goroutines, nothing to do inside",
				system, p.contenders),
			drivers: append([]string{ours, peer}, more...), rounds: 1, measure: contendedHere,
			metrics: []metric{{"locks", "/s", 1, 0}, {"jain", "", 1, 3}, {"p50", "us", -1, 1},
				{"max", "us", -1, 0}},
			goals: []goal{ratioGoal(fmt.Sprintf("at least %.0f x %s", least, peer), "locks", ours,
				peer, atLeast, least)},
		}
	}
	held := func(system, ours string) *scenario {
		return &scenario{
			name: system + "-held",
			title: fmt.Sprintf("%s: %d locks held by one process, each renewed every %v", system,
				p.systemHolding.locks, p.systemHolding.ttl/3),
			drivers: []string{ours}, rounds: 1, measure: requestsWhileHeld(p.systemHolding),
			metrics: []metric{{"requests", "/s", -1, 1}, {"cpu", "% of a core", -1, 2},
				{"goroutines", "", -1, 0}, {"heap", "B/lock", -1, 0}},
			goals: []goal{
				valueGoal("at most 20 goroutines in all", "goroutines", ours, atMost, 20),
				valueGoal("at most a request a second for 1,000 locks", "requests", ours, atMost,
					max(1, float64(p.systemHolding.locks)/1000)),
			},
		}
	}
	few := min(p.warm, 20)
	return []*scenario{
		pair("etcd", twoTxns, few, []goal{
			ratioGoal("p50 at most 0.7 x concurrency.Mutex", "p50", oursEtcd, etcdMutex, atMost,
				0.7),
			ratioGoal("p50 at most 1.15 x two bare Txns", "p50", oursEtcd, twoTxns, atMost, 1.15),
		}, oursEtcd, etcdMutex, twoTxns),
		handover("etcd", "", []goal{ratioGoal("p50 at most 0.1 x concurrency.Mutex", "p50",
			oursEtcd, etcdMutex, atMost, 0.1)}, oursEtcd, etcdMutex),
		contended("etcd", oursEtcd, etcdMutex, 1000, oursEtcdTurns),
		held("etcd", oursEtcd),
		pair("postgres", twoUpdates, few, []goal{ratioGoal("p50 at most 1.3 x two updates of a row",
			"p50", oursPostgres, twoUpdates, atMost, 1.3)},
			oursPostgres, twoUpdates, advisory, pgLock),
		handover("postgres", listenNotify, []goal{
			ratioGoal("p50 at most 1.3 x LISTEN and NOTIFY", "p50", oursPostgres, listenNotify,
				atMost, 1.3),
			ratioGoal("p50 at most 0.1 x pglock", "p50", oursPostgres, pgLock, atMost, 0.1),
		}, oursPostgres, listenNotify, advisory, pgLock),
		held("postgres", oursPostgres),
		// Its server compiles while it runs, and the first driver would pay for that.
		pair("zookeeper", "", 5*p.warm, []goal{
			ratioGoal("p50 at most 0.9 x the client's recipe", "p50", oursZooKeeper, zkLock,
				atMost, 0.9),
		}, oursZooKeeper, zkLock),
		handover("zookeeper", "", nil, oursZooKeeper, zkLock),
		held("zookeeper", oursZooKeeper),
	}
}

// openSystem connects Holdfast to a system, by the function that opens its backend.
func openSystem(backend func(ctx context.Context, at site) (driver.Backend, error),
	options ...holdfast.Option) func(context.Context, site, time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		b, err := backend(ctx, at)
		if err != nil {
			return nil, err
		}
		return oursOn(b, append([]holdfast.Option{holdfast.WithTTL(lease)}, options...))
	}
}

func openOursEtcd(ctx context.Context, at site) (driver.Backend, error) {
	return etcdhold.Open(ctx, "etcd://"+at.Etcd)
}

func openOursPostgres(ctx context.Context, at site) (driver.Backend, error) {
	pool, err := pgxpool.New(ctx, at.Postgres)
	if err != nil {
		return nil, err
	}
	err = pghold.Migrate(ctx, pool)
	pool.Close()
	if err != nil {
		return nil, err
	}
	return pghold.Open(ctx, at.Postgres)
}

func openOursZooKeeper(ctx context.Context, at site) (driver.Backend, error) {
	return zkhold.Open(ctx, "zookeeper://"+at.ZooKeeper)
}

// openTwoTxns puts a key and deletes it, each in a transaction with one condition.
func openTwoTxns(_ context.Context, at site, _ time.Duration) (*locker, error) {
	client, err := etcdClient(at.Etcd)
	if err != nil {
		return nil, err
	}
	txn := func(ctx context.Context, condition clientv3.Cmp, then clientv3.Op) error {
		r, err := client.Txn(ctx).If(condition).Then(then).Commit()
		if err == nil && !r.Succeeded {
			err = errLost
		}
		return err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			return held{key: key}, txn(ctx,
				clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
				clientv3.OpPut(key, strings.Repeat("x", 40)))
		},
		release: func(ctx context.Context, h held) error {
			return txn(ctx, clientv3.Compare(clientv3.CreateRevision(h.key), "!=", 0),
				clientv3.OpDelete(h.key))
		},
		close: func() { client.Close() },
	}, nil
}

// openRows returns the pool, and makes the table of the floors on PostgreSQL.
func openRows(ctx context.Context, at site) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, at.Postgres)
	if err != nil {
		return nil, err
	}
	// Without a lock, two at once may both find no table, and then one of them fails.
	_, err = pool.Exec(ctx, `SELECT pg_advisory_lock(1); CREATE TABLE IF NOT EXISTS floor
(key text PRIMARY KEY, taken bool NOT NULL) WITH (fillfactor = 50); SELECT pg_advisory_unlock(1)`)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// openTwoUpdates updates the row of a key twice.
func openTwoUpdates(ctx context.Context, at site, _ time.Duration) (*locker, error) {
	pool, err := openRows(ctx, at)
	if err != nil {
		return nil, err
	}
	update := func(ctx context.Context, key string, taken bool) (int64, error) {
		tag, err := pool.Exec(ctx, "UPDATE floor SET taken = $2 WHERE key = $1", key, taken)
		return tag.RowsAffected(), err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			n, err := update(ctx, key, true)
			if err == nil && n == 0 {
				_, err = pool.Exec(ctx, "INSERT INTO floor VALUES ($1, true)", key)
			}
			return held{key: key}, err
		},
		release: func(ctx context.Context, h held) error {
			_, err := update(ctx, h.key, false)
			return err
		},
		close: pool.Close,
	}, nil
}

// openListenNotify takes a row, and gives it back with a notice that waiters hear. That is no lock:
// a holder that dies keeps the row.
func openListenNotify(ctx context.Context, at site, _ time.Duration) (*locker, error) {
	pool, err := openRows(ctx, at)
	if err != nil {
		return nil, err
	}
	listener, err := pgx.Connect(ctx, at.Postgres)
	if err == nil {
		_, err = listener.Exec(ctx, "LISTEN floor")
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	take := func(ctx context.Context, key string) (bool, error) {
		tag, err := pool.Exec(ctx, `INSERT INTO floor AS f VALUES ($1, true)
ON CONFLICT (key) DO UPDATE SET taken = true WHERE NOT f.taken`, key)
		return tag.RowsAffected() == 1, err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			for {
				if got, err := take(ctx, key); got || err != nil {
					return held{key: key}, err
				}
				if _, err := listener.WaitForNotification(ctx); err != nil {
					return held{}, err
				}
			}
		},
		release: func(ctx context.Context, h held) error {
			_, err := pool.Exec(ctx, `WITH given AS (UPDATE floor SET taken = false WHERE key = $1)
SELECT pg_notify('floor', $1)`, h.key)
			return err
		},
		close: func() {
			listener.Close(context.Background())
			pool.Close()
		},
	}, nil
}

// openPGLock connects cirello.io/pglock. A waiter sleeps for a lease, so the lease is a second and
// not its default of 20: otherwise no key would be handed over while it is measured.
func openPGLock(ctx context.Context, at site, _ time.Duration) (*locker, error) {
	config, err := pgx.ParseConfig(at.Postgres)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(time.Second),
		pglock.WithHeartbeatFrequency(500*time.Millisecond))
	if err == nil {
		err = client.TryCreateTable()
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			lock, err := client.AcquireContext(ctx, key)
			return held{lock: lock}, err
		},
		release: func(ctx context.Context, h held) error {
			err := client.ReleaseContext(ctx, h.lock.(*pglock.Lock))
			if errors.Is(err, pglock.ErrLockAlreadyReleased) {
				// Its lease has ended, or a heartbeat came in between. Then the next one waits for
				// the end of the lease. So it does after any other release, because waiters are
				// told of none.
				return nil
			}
			return err
		},
		close: func() { db.Close() },
	}, nil
}

// openZKLock connects the recipe of the client library, which knows no contexts.
func openZKLock(_ context.Context, at site, lease time.Duration) (*locker, error) {
	conn, _, err := zk.Connect([]string{at.ZooKeeper}, lease, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return &locker{
		acquire: func(_ context.Context, key string) (held, error) {
			path := "/recipe/" + strings.ReplaceAll(key, "/", "-")
			lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			return held{lock: lock}, lock.Lock()
		},
		release: func(_ context.Context, h held) error { return h.lock.(*zk.Lock).Unlock() },
		close:   conn.Close,
	}, nil
}

// requestsWhileHeld measures what the renewals of many locks cost.
func requestsWhileHeld(h holdingPlan) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		var before float64
		var since time.Time
		var rate float64
		s, err := e.whileHeld(ctx, name, h, func() (err error) {
			before, err = e.requests(ctx, name, h)
			since = time.Now()
			return err
		}, func() error {
			after, err := e.requests(ctx, name, h)
			rate = (after - before) / time.Since(since).Seconds()
			return err
		})
		if err != nil {
			return nil, err
		}
		s["requests"] = rate
		return s, nil
	}
}

// requests returns how many requests the system of the driver has had so far.
func (e *env) requests(ctx context.Context, name string, h holdingPlan) (float64, error) {
	switch name {
	case oursEtcd:
		return etcdRequests(ctx, e.at.Etcd)
	case oursPostgres:
		told := time.Second
		if h.locks > 100 {
			told = 10 * time.Second // by a session that has nothing to do
		}
		return postgresRequests(ctx, e.at.Postgres, told)
	case oursZooKeeper:
		return zooKeeperRequests(ctx, e.at.ZooKeeper)
	}
	return 0, fmt.Errorf("the requests of %q are not counted", name)
}

// etcdRequests counts messages, also those of streams, such as keep-alives.
func etcdRequests(ctx context.Context, address string) (n float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "grpc_server_msg_received_total{") {
			continue
		}
		fields := strings.Fields(lines.Text())
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, err
		}
		n += value
	}
	return n, lines.Err()
}

// postgresRequests counts transactions. The server may add those of a connection to the sum as late
// as told afterwards, so postgresRequests waits first.
func postgresRequests(ctx context.Context, url string, told time.Duration) (n float64, err error) {
	if err := sleep(ctx, told+500*time.Millisecond); err != nil {
		return 0, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT sum(xact_commit + xact_rollback)::float
FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// zooKeeperRequests counts packets from clients.
func zooKeeperRequests(ctx context.Context, address string) (n float64, err error) {
	text, err := fourLetters(ctx, address, "srvr")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(text, "Received: ")
	if !found {
		return 0, fmt.Errorf("no number of packets in %q", text)
	}
	digits, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(digits, 64)
}

// fourLetters sends a ZooKeeper one of its words of four letters.
func fourLetters(ctx context.Context, address, word string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(grace))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 1<<12))
	return string(text), err
}
