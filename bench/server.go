package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// server is a redis-server process, and a connection for questions about it.
type server struct {
	*daemon
	address string
	dir     string
	client  *goredis.Client
}

// startServer starts a server that stores nothing on disk, and waits until it answers.
func startServer(ctx context.Context, dir string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &server{address: address, dir: dir}
	return s, s.run(ctx)
}

// freeAddress returns a free address. Its port is below those of outgoing connections: otherwise a
// client that looks for a killed server could connect to itself.
func freeAddress() (string, error) {
	const first, last = 10_000, 32_000
	var err error
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", err
}

// run starts the process, the first time or after a kill, and waits until it answers.
func (s *server) run(ctx context.Context) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("%w: install Debian's redis-server, or put one into the PATH", err)
	}
	_, port, _ := net.SplitHostPort(s.address)
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
		"no", "--dir", s.dir)
	// One connection that sends no commands of its own: they would be counted.
	s.client = goredis.NewClient(&goredis.Options{Addr: s.address, PoolSize: 1, MaxRetries: -1,
		Protocol: 2, DisableIdentity: true, ReadTimeout: time.Minute})
	s.daemon, err = startDaemon(ctx, cmd, filepath.Join(s.dir, "redis.log"), s.answers)
	return err
}

func (s *server) answers(ctx context.Context) error {
	// Dial first: after a few refusals the client library would try only once a second.
	conn, err := net.DialTimeout("tcp", s.address, 5*time.Second)
	if err != nil {
		return err
	}
	conn.Close()
	return s.client.Ping(ctx).Err()
}

func (s *server) stop() {
	s.client.Close()
	s.end(os.Kill)
}

// awaitAnswer waits until a server that was stopped answers.
func (s *server) awaitAnswer(ctx context.Context) error {
	for s.answers(ctx) != nil {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// do sends a command. The reply is a string, an int64, a []any, or nil.
func (s *server) do(args ...any) (any, error) {
	reply, err := s.client.Do(context.Background(), args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", args[0], err)
	}
	return reply, nil
}

// keys counts the keys of locks, and the keys that Holdfast keeps beside them.
func (s *server) keys() (locks, beside int, err error) {
	ctx := context.Background()
	all := s.client.Scan(ctx, 0, "", 1000).Iterator()
	for all.Next(ctx) {
		if strings.HasPrefix(all.Val(), "holdfast:") {
			beside++
		} else {
			locks++
		}
	}
	return locks, beside, all.Err()
}

// info is the answer to INFO: numbers by field, and calls by command.
type info map[string]float64

// info asks the server. The answer counts this INFO as a command; the next answer counts its bytes.
func (s *server) info() (info, error) {
	text, err := s.client.Info(context.Background(), "everything").Result()
	if err != nil {
		return nil, err
	}
	fields := make(info)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if rest, isCommand := strings.CutPrefix(name, "cmdstat_"); isCommand {
			name = rest
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		}
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			fields[name] = number
		}
	}
	return fields, nil
}

// cpu returns the processor time that the server has used, in seconds.
func (i info) cpu() float64 { return i["used_cpu_user"] + i["used_cpu_sys"] }

// sent counts the commands that clients send, INFO included, without the commands that their
// scripts call.
func (i info) sent() (n float64) {
	for _, name := range []string{"evalsha", "eval", "evalsha_ro", "script|load", "ping", "info",
		"subscribe", "ssubscribe", "hello"} {
		n += i[name]
	}
	return n
}

// monitor counts commands by MONITOR. It tells those that clients send from those that scripts
// call, which INFO does not. It costs the server time, so it is used only where no time is
// measured.
type monitor struct {
	ping        func() error // sends PING with the mark
	conn        net.Conn
	sent, inner atomic.Int64
	marked      atomic.Bool // the mark was seen
	done        chan struct{}
}

// monitorBehind is how far a monitor may be behind when it is stopped.
const monitorBehind = time.Minute

// mark is the argument of a PING, the last command that a monitor counts.
const mark = "end of the monitored"

func (s *server) monitor() (*monitor, error) {
	conn, err := net.DialTimeout("tcp", s.address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(conn, 1<<16)
	if _, err = io.WriteString(conn, "MONITOR\r\n"); err == nil {
		_, err = lines.ReadString('\n')
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	m := &monitor{conn: conn, done: make(chan struct{}), ping: func() error {
		_, err := s.do("PING", mark)
		return err
	}}
	go m.read(lines)
	return m, nil
}

// read counts the lines until the mark, or until the connection is closed.
func (m *monitor) read(lines *bufio.Reader) {
	defer close(m.done)
	for !m.marked.Load() {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		m.count(line)
	}
}

// count counts one line of MONITOR, such as: +1700000000.000000 [0 lua] "get" "key"
func (m *monitor) count(line []byte) {
	head, _, found := strings.Cut(string(line[:min(len(line), 64)]), "]")
	switch {
	case !found || line[0] != '+':
	case strings.HasSuffix(head, " lua"):
		m.inner.Add(1)
	case strings.HasSuffix(strings.TrimSpace(string(line)), `] "PING" "`+mark+`"`):
		m.marked.Store(true)
	default:
		m.sent.Add(1)
	}
}

// stop waits until the monitor has seen all commands so far. It returns how many clients sent and
// how many scripts called.
func (m *monitor) stop() (sent, inner float64, err error) {
	defer m.conn.Close()
	// The monitor may be behind. So it reads until it sees this PING, which does not count.
	if err := m.ping(); err != nil {
		return 0, 0, err
	}
	select {
	case <-m.done:
	case <-time.After(monitorBehind):
		m.conn.Close()
		<-m.done
	}
	if !m.marked.Load() {
		return 0, 0, fmt.Errorf("MONITOR has not shown all commands within %v", monitorBehind)
	}
	return float64(m.sent.Load()), float64(m.inner.Load()), nil
}
