package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// Drivers that need more than Redis and Go.
const (
	etcdMutex   = "etcd"        // concurrency.Mutex, on one etcd
	advisory    = "postgres"    // session-level advisory locks
	redisPy     = "redis-py"    // its Lock, in Python
	redlockNode = "redlock-npm" // redlock on ioredis, in Node.js
)

var outside = []string{etcdMutex, advisory, redisPy, redlockNode}

// missing says what is not installed of what the drivers need.
func missing(drivers []string) error {
	var absent []string
	need := func(driver, what string, there bool) {
		if slices.Contains(drivers, driver) && !there {
			absent = append(absent, what+" for the driver "+driver)
		}
	}
	inPath := func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
	need(etcdMutex, "etcd", inPath("etcd"))
	_, err := postgresCommand("initdb")
	need(advisory, "a PostgreSQL server", err == nil)
	need(redisPy, "python3-redis", !slices.Contains(drivers, redisPy) || exec.Command(pythonPath, "-c", "import redis").Run() == nil)
	need(redlockNode, "node and npm", inPath("node") && inPath("npm"))
	if len(absent) == 0 {
		return nil
	}
	return fmt.Errorf("not installed: %s; scripts/install.sh bench installs what is missing, and -redis-only leaves out what needs it", strings.Join(absent, ", "))
}

// versions says what is installed of what the drivers need.
func versions(drivers []string) map[string]string {
	all := make(map[string]string)
	add := func(driver, name string, args ...string) {
		if !slices.Contains(drivers, driver) {
			return
		}
		out, err := exec.Command(name, args...).Output()
		if line, _, _ := strings.Cut(string(out), "\n"); err == nil {
			all[driver] = strings.TrimSpace(line)
		}
	}
	add(etcdMutex, "etcd", "--version")
	if postgres, err := postgresCommand("postgres"); err == nil {
		add(advisory, postgres, "--version")
	}
	add(redisPy, pythonPath, "-c", "import platform, redis; print('Python', platform.python_version(), 'with redis-py', redis.__version__)")
	add(redlockNode, "node", "-p", "'Node.js ' + process.version")
	var npm struct{ Dependencies map[string]string }
	if data, err := foreign.ReadFile("foreign/package.json"); err == nil && all[redlockNode] != "" && json.Unmarshal(data, &npm) == nil {
		for _, name := range slices.Sorted(maps.Keys(npm.Dependencies)) {
			all[redlockNode] += ", " + name + " " + npm.Dependencies[name]
		}
	}
	return all
}

// postgresCommand looks also where Debian puts them, which is not in the PATH.
func postgresCommand(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		// With its links followed, since it looks for its files beside itself.
		return filepath.EvalSymlinks(path)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
	}
	return found[len(found)-1], nil
}

// startOutside starts those servers that are not Redis and that the drivers need.
func (e *env) startOutside(ctx context.Context, drivers []string) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if slices.Contains(drivers, redisPy) || slices.Contains(drivers, redlockNode) {
		if e.programs, err = installPrograms(ctx, e.dir, slices.Contains(drivers, redlockNode)); err != nil {
			return nil, err
		}
	}
	if slices.Contains(drivers, etcdMutex) {
		var end func()
		if e.outside.Etcd, end, err = startEtcd(ctx, filepath.Join(e.dir, "etcd")); err != nil {
			return nil, err
		}
		stops = append(stops, end)
	}
	if slices.Contains(drivers, advisory) {
		var end func()
		if e.outside.Postgres, end, err = startPostgres(ctx); err != nil {
			return nil, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// daemon starts a server whose output goes to a file, and waits until it answers.
func daemon(ctx context.Context, cmd *exec.Cmd, log string, end os.Signal, answers func(context.Context) error) (stop func(), err error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := start(cmd); err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	go func() {
		cmd.Wait()
		close(gone)
	}()
	stop = func() {
		cmd.Process.Signal(end)
		select {
		case <-gone:
		case <-time.After(grace):
			cmd.Process.Kill()
			<-gone
		}
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := answers(attempt)
		cancel()
		if err == nil {
			return stop, nil
		}
		select {
		case <-gone:
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%s ended: %s", filepath.Base(cmd.Path), text)
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}
	}
}

func startEtcd(ctx context.Context, dir string) (address string, stop func(), err error) {
	if address, err = freeAddress(); err != nil {
		return "", nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("etcd", "--data-dir", dir, "--log-level", "error", "--listen-client-urls", "http://"+address, "--advertise-client-urls",
		"http://"+address, "--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	stop, err = daemon(ctx, cmd, dir+".log", syscall.SIGTERM, func(ctx context.Context) error {
		client, err := etcdClient(address)
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Get(ctx, "ready")
		return err
	})
	return address, stop, err
}

// startPostgres starts a server with a new database, as another user if this one is root, whom it refuses.
func startPostgres(ctx context.Context) (url string, stop func(), err error) {
	initdb, err := postgresCommand("initdb")
	if err != nil {
		return "", nil, err
	}
	// Not in a directory that only this user may enter.
	dir, err := os.MkdirTemp("", "holdfast-bench-postgres")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	var attributes syscall.SysProcAttr
	if os.Geteuid() == 0 {
		other, err := user.Lookup("postgres")
		if err != nil {
			if other, err = user.Lookup("nobody"); err != nil {
				return "", nil, err
			}
		}
		uid, _ := strconv.Atoi(other.Uid)
		gid, _ := strconv.Atoi(other.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return "", nil, err
		}
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(filepath.Dir(initdb), name), args...)
		cmd.Dir = dir
		own := attributes
		cmd.SysProcAttr = &own
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	address, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	host, port, _ := strings.Cut(address, ":")
	url = fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", address)
	end, err := daemon(ctx, command("postgres", "-D", data, "-p", port, "-c", "listen_addresses="+host, "-c", "unix_socket_directories=",
		"-c", "max_connections=300"), filepath.Join(dir, "log"), syscall.SIGQUIT, func(ctx context.Context) error {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		return pool.Ping(ctx)
	})
	if err != nil {
		return "", nil, err
	}
	return url, func() {
		end()
		os.RemoveAll(dir)
	}, nil
}

func etcdClient(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// etcdLocker has as many sessions as there are locks and waiters at once: two goroutines with one session and one key would
// both have the lock.
type etcdLocker struct {
	client *clientv3.Client
	lease  int

	mu   sync.Mutex
	free []*concurrency.Session
}

type etcdHold struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func openEtcd(address string, lease time.Duration) (locker, error) {
	client, err := etcdClient(address)
	if err != nil {
		return nil, err
	}
	return &etcdLocker{client: client, lease: int(lease.Seconds())}, nil
}

func (l *etcdLocker) acquire(ctx context.Context, key string) (held, error) {
	session, err := l.session()
	if err != nil {
		return held{}, err
	}
	mutex := concurrency.NewMutex(session, "/"+key)
	if err := mutex.Lock(ctx); err != nil {
		l.giveBack(session)
		return held{}, err
	}
	return held{lock: etcdHold{session, mutex}}, nil
}

func (l *etcdLocker) session() (*concurrency.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		session := l.free[n-1]
		l.free = l.free[:n-1]
		return session, nil
	}
	return concurrency.NewSession(l.client, concurrency.WithTTL(l.lease))
}

func (l *etcdLocker) giveBack(session *concurrency.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, session)
}

func (l *etcdLocker) release(ctx context.Context, h held) error {
	e := h.lock.(etcdHold)
	err := e.mutex.Unlock(ctx)
	l.giveBack(e.session)
	return err
}

func (l *etcdLocker) close() { l.client.Close() }

// postgresLocker has a connection for each lock and each waiter, which is what session-level locks take.
type postgresLocker struct{ pool *pgxpool.Pool }

type postgresHold struct {
	conn *pgxpool.Conn
	key  int64
}

func openPostgres(ctx context.Context, url string) (locker, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 70
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &postgresLocker{pool}, nil
}

func (l *postgresLocker) acquire(ctx context.Context, key string) (held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return held{}, err
	}
	hash := fnv.New64a()
	hash.Write([]byte(key))
	h := postgresHold{conn, int64(hash.Sum64())}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", h.key); err != nil {
		conn.Release()
		return held{}, err
	}
	return held{lock: h}, nil
}

func (l *postgresLocker) release(ctx context.Context, h held) error {
	p := h.lock.(postgresHold)
	defer p.conn.Release()
	var ok bool
	if err := p.conn.QueryRow(ctx, "select pg_advisory_unlock($1)", p.key).Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return errLost
	}
	return nil
}

func (l *postgresLocker) close() { l.pool.Close() }
