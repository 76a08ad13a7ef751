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
	"syscall"
	"time"
)

// server is a redis-server process of our own, and a connection to it for questions.
type server struct {
	address string
	dir     string
	cmd     *exec.Cmd
	gone    chan struct{}
	*wire
}

// startServer starts a server that keeps nothing on disk, and waits until it answers.
func startServer(ctx context.Context, dir string) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: install Debian's redis-server, or put one into the PATH", err)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &server{address: address, dir: dir}
	return s, s.run(ctx, path)
}

// freeAddress returns one whose port is below those that systems give to outgoing connections: clients that look for a server
// that was killed could else connect to themselves.
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

// run starts the process, which may have been killed, and waits until it answers.
func (s *server) run(ctx context.Context, path string) error {
	_, port, _ := net.SplitHostPort(s.address)
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.gone = make(chan struct{})
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := start(s.cmd); err != nil {
		return err
	}
	cmd, gone := s.cmd, s.gone
	go func() {
		cmd.Wait()
		close(gone)
	}()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if s.wire, err = dial(s.address); err == nil {
			if _, err = s.do("PING"); err == nil {
				return nil
			}
			s.wire.close()
		}
		select {
		case <-ticker.C:
		case <-s.gone:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("redis-server ended: %s", text)
		case <-ctx.Done():
			s.stop()
			return ctx.Err()
		}
	}
}

func (s *server) stop() {
	if s.wire != nil {
		s.wire.close()
	}
	s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.gone
}

// keys counts the keys of locks, and those that Holdfast keeps beside them.
func (s *server) keys() (locks, beside int, err error) {
	for cursor := "0"; ; {
		reply, err := s.do("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return 0, 0, err
		}
		parts := reply.([]any)
		for _, key := range parts[1].([]any) {
			if strings.HasPrefix(key.(string), "holdfast:") {
				beside++
			} else {
				locks++
			}
		}
		if cursor = parts[0].(string); cursor == "0" {
			return locks, beside, nil
		}
	}
}

// info is what the server says of itself at one time.
type info map[string]float64

// info asks the server. The answer counts the question in its commands, and in the next one's bytes.
func (s *server) info() (info, error) {
	reply, err := s.do("INFO", "everything")
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
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

// cpu is the processor time that the server had used, in seconds.
func (i info) cpu() float64 { return i["used_cpu_user"] + i["used_cpu_sys"] }

// sent counts the commands that clients send, the questions for it included, and not those that their scripts call.
func (i info) sent() (n float64) {
	for _, name := range []string{"evalsha", "eval", "evalsha_ro", "script|load", "ping", "info", "subscribe", "ssubscribe", "hello"} {
		n += i[name]
	}
	return n
}

// wire is a connection with one command at a time, and no client library whose ways could disturb.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(address string) (*wire, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReaderSize(conn, 1<<16)}, nil
}

func (w *wire) close() { w.conn.Close() }

// do returns a string, an int64, a []any, or nil.
func (w *wire) do(args ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	w.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(w.conn, b.String()); err != nil {
		return nil, err
	}
	reply, err := w.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return reply, nil
}

func (w *wire) read() (any, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty reply")
	}
	rest := line[1:]
	n, _ := strconv.Atoi(rest)
	switch {
	case line[0] == '+':
		return rest, nil
	case line[0] == '-':
		return nil, errors.New(rest)
	case line[0] == ':':
		return int64(n), nil
	case n < 0:
		return nil, nil
	case line[0] == '$':
		data := make([]byte, n+2)
		_, err := io.ReadFull(w.r, data)
		return string(data[:n]), err
	case line[0] == '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = w.read(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("reply %q", line)
}

// monitor counts commands as the server executes them: those that clients send, and those that scripts call, which
// INFO does not tell apart. It costs the server time, so it is on only where no time is measured.
type monitor struct {
	s           *server
	w           *wire
	sent, inner atomic.Int64
	done        chan struct{}
}

func (s *server) monitor() (*monitor, error) {
	w, err := dial(s.address)
	if err != nil {
		return nil, err
	}
	if _, err := w.do("MONITOR"); err != nil {
		w.close()
		return nil, err
	}
	w.conn.SetDeadline(time.Time{})
	m := &monitor{s: s, w: w, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			line, err := w.r.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
			// +1700000000.000000 [0 lua] "get" ...
			if head, _, found := strings.Cut(string(line[:min(len(line), 64)]), "]"); !found || line[0] != '+' {
				continue
			} else if strings.HasSuffix(head, " lua") {
				m.inner.Add(1)
			} else {
				m.sent.Add(1)
			}
		}
	}()
	return m, nil
}

// stop returns how many commands were sent by clients and called by scripts, once the server has told of all that came
// before.
func (m *monitor) stop() (sent, inner float64, err error) {
	// The PING comes last in what is monitored; itself it does not count.
	const mark = "end of the monitored"
	before := m.sent.Load()
	if _, err := m.s.do("PING", mark); err != nil {
		return 0, 0, err
	}
	deadline := time.Now().Add(10 * time.Second)
	for m.sent.Load() == before && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	m.w.close()
	<-m.done
	return float64(m.sent.Load() - 1), float64(m.inner.Load()), nil
}
