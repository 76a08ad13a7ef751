package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// needs are the programs that drivers need and that may not be installed, with the command that
// prints their version.
var needs = []struct {
	driver, what string
	version      func() []string
}{
	{etcdMutex, "etcd", etcdVersion},
	{oursEtcd, "etcd", etcdVersion},
	{oursEtcdTurns, "etcd", etcdVersion},
	{etcdctl, "etcdctl", func() []string { return []string{"etcdctl", "version"} }},
	{etcdctl, "etcd", etcdVersion},
	{flock, "flock of util-linux", func() []string { return []string{"flock", "--version"} }},
	{advisory, "a PostgreSQL server", postgresVersion},
	{oursPostgres, "a PostgreSQL server", postgresVersion},
	{oursZooKeeper, "Java", func() []string { return []string{"java", "--version"} }},
	{redisPy, "python3-redis", func() []string {
		return []string{pythonPath, "-c",
			"import platform, redis; print('Python', platform.python_version(), 'with redis-py', redis.__version__)"}
	}},
	{redlockNode, "npm", func() []string { return []string{"npm", "--version"} }},
	{redlockNode, "node", func() []string {
		return []string{"node", "-p",
			`'Node.js ' + process.version + Object.entries(JSON.parse(process.argv[1]).dependencies).map(([name, version]) => ', ' + name + ' ' + version).join('')`,
			string(packageJSON)}
	}},
}

func etcdVersion() []string { return []string{"etcd", "--version"} }

func postgresVersion() []string { return []string{postgresCommand("postgres"), "--version"} }

// versions returns the versions of what the drivers need. The error names what is not installed.
func versions(drivers []string) (map[string]string, error) {
	all := make(map[string]string)
	var absent []string
	for _, n := range needs {
		if !slices.Contains(drivers, n.driver) {
			continue
		}
		command := n.version()
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			absent = append(absent, n.what+" for the driver "+n.driver)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		all[n.driver] = strings.TrimSpace(line)
	}
	if len(absent) > 0 {
		return nil,
			fmt.Errorf(
				"not installed: %s; scripts/install.sh bench installs what is missing, and -redis-only leaves out what needs it",
				strings.Join(absent, ", "))
	}
	return all, nil
}

// postgresCommand returns the path of a command of PostgreSQL. It also looks where Debian puts
// them, which is not in PATH.
func postgresCommand(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		// Follow links: the command looks for its files beside itself.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return path
		}
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return found[len(found)-1]
	}
	return name
}

// startOutside starts the servers other than Redis that the drivers need, and installs the
// programs.
func (e *env) startOutside(ctx context.Context, drivers []string) (err error) {
	uses := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return slices.Contains(drivers, name)
		})
	}
	if uses(redisPy, redlockNode) {
		if e.programs, err = installPrograms(ctx, e.dir, uses(redlockNode)); err != nil {
			return err
		}
	}
	if uses(append(onEtcd, etcdctl)...) {
		if e.outside.Etcd, err = startEtcd(ctx, filepath.Join(e.dir, "etcd"), &e.ends); err != nil {
			return err
		}
	}
	if uses(onPostgres...) {
		if e.outside.Postgres, err = startPostgres(ctx, &e.ends); err != nil {
			return err
		}
	}
	if uses(onZooKeeper...) {
		e.outside.ZooKeeper, err = startZooKeeper(ctx, filepath.Join(e.dir, "zookeeper"), &e.ends)
	}
	return err
}

func startEtcd(ctx context.Context, dir string, all *ends) (address string, err error) {
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	peer, err := freeAddress()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("etcd", "--data-dir", dir, "--log-level", "error", "--listen-client-urls",
		"http://"+address, "--advertise-client-urls",
		"http://"+address, "--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls",
		"http://"+peer, "--initial-cluster", "default=http://"+peer)
	d, err := startDaemon(ctx, cmd, dir+".log", func(ctx context.Context) error {
		client, err := etcdClient(address)
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Get(ctx, "ready")
		return err
	})
	if err == nil {
		all.add(func() { d.end(syscall.SIGTERM) })
	}
	return address, err
}

// classes are the libraries that a ZooKeeper needs, as Debian's libzookeeper-java has them.
var classes = []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "metrics-core",
	"snappy-java"}

// startZooKeeper starts a server that syncs to disk before it answers, with its default settings.
func startZooKeeper(ctx context.Context, dir string, all *ends) (address string, err error) {
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	host, port, _ := strings.Cut(address, ":")
	config := dir + ".cfg"
	text := fmt.Sprintf("clientPortAddress=%s\nclientPort=%s\ndataDir=%s\nmaxClientCnxns=0\n"+
		"admin.enableServer=false\n4lw.commands.whitelist=srvr\n", host, port, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", err
	}
	var jars []string
	for _, name := range classes {
		jars = append(jars, "/usr/share/java/"+name+".jar")
	}
	cmd := exec.Command("java", "-Xmx512m", "-cp", strings.Join(jars, ":"),
		"org.apache.zookeeper.server.ZooKeeperServerMain", config)
	d, err := startDaemon(ctx, cmd, dir+".log", func(ctx context.Context) error {
		text, err := fourLetters(ctx, address, "srvr")
		if err == nil && !strings.Contains(text, "Mode: ") {
			err = fmt.Errorf("it does not serve yet: %q", text)
		}
		return err
	})
	if err == nil {
		all.add(func() { d.end(syscall.SIGTERM) })
	}
	return address, err
}

// startPostgres starts a server with a new database. It runs as another user if this one is root,
// because PostgreSQL refuses root.
func startPostgres(ctx context.Context, all *ends) (url string, err error) {
	// Not in env.dir, which only this user may enter.
	dir, err := os.MkdirTemp("", "holdfast-bench-postgres")
	if err != nil {
		return "", err
	}
	all.add(func() { os.RemoveAll(dir) })
	var other *syscall.Credential
	if os.Geteuid() == 0 {
		if other, err = giveAway(dir); err != nil {
			return "", err
		}
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(postgresCommand(name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: other}
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "bench", "-A", "trust",
		"--no-sync").CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	address, err := freeAddress()
	if err != nil {
		return "", err
	}
	host, port, _ := strings.Cut(address, ":")
	url = fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", address)
	server := command("postgres", "-D", data, "-p", port, "-c", "listen_addresses="+host, "-c",
		"unix_socket_directories=", "-c", "max_connections=300")
	d, err := startDaemon(ctx, server, filepath.Join(dir, "log"), func(ctx context.Context) error {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		return pool.Ping(ctx)
	})
	if err == nil {
		all.add(func() { d.end(syscall.SIGQUIT) })
	}
	return url, err
}

// giveAway gives a directory to a user who is not root, and returns that user.
func giveAway(dir string) (*syscall.Credential, error) {
	other, err := user.Lookup("postgres")
	if err != nil {
		if other, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, _ := strconv.Atoi(other.Uid)
	gid, _ := strconv.Atoi(other.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

func etcdClient(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address},
		DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

type etcdHold struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func openEtcd(_ context.Context, at site, lease time.Duration) (*locker, error) {
	client, err := etcdClient(at.Etcd)
	if err != nil {
		return nil, err
	}
	// One session for each lock and waiter: two goroutines with one session and one key would both
	// have the lock.
	free := make(chan *concurrency.Session, 1<<16)
	session := func() (*concurrency.Session, error) {
		select {
		case s := <-free:
			return s, nil
		default:
			return concurrency.NewSession(client, concurrency.WithTTL(int(lease.Seconds())))
		}
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			s, err := session()
			if err != nil {
				return held{}, err
			}
			mutex := concurrency.NewMutex(s, "/"+key)
			if err := mutex.Lock(ctx); err != nil {
				free <- s
				return held{}, err
			}
			return held{lock: etcdHold{s, mutex}}, nil
		},
		release: func(ctx context.Context, h held) error {
			e := h.lock.(etcdHold)
			err := e.mutex.Unlock(ctx)
			free <- e.session
			return err
		},
		close: func() { client.Close() },
	}, nil
}

// hashOf returns a number for a key, where a driver cannot use the key itself.
func hashOf(key string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	return hash.Sum64()
}

// openPostgres takes a connection for each lock and each waiter: session-level locks need that.
func openPostgres(ctx context.Context, at site, _ time.Duration) (*locker, error) {
	config, err := pgxpool.ParseConfig(at.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 70
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return held{}, err
			}
			id := int64(hashOf(key))
			if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", id); err != nil {
				conn.Release()
				return held{}, err
			}
			return held{id: id, lock: conn}, nil
		},
		release: func(ctx context.Context, h held) error {
			conn := h.lock.(*pgxpool.Conn)
			defer conn.Release()
			var ok bool
			err := conn.QueryRow(ctx, "select pg_advisory_unlock($1)", h.id).Scan(&ok)
			if err == nil && !ok {
				err = errLost
			}
			return err
		},
		close: pool.Close,
	}, nil
}
