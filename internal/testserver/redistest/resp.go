//go:build unix

package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Client is a connection for tests. It sends one command at a time, and uses no client library,
// which could hide something.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
}

// ReplyError is an error that the server answered.
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }

// Dial connects to the server, and logs in if there is a password.
func (s *Server) Dial() (*Client, error) {
	var conn net.Conn
	var err error
	dialer := &net.Dialer{Timeout: testserver.Patience}
	switch {
	case s.unix:
		conn, err = dialer.Dial("unix", s.Addr)
	case s.tls != nil:
		conn, err = tls.DialWithDialer(dialer, "tcp", s.Addr, s.tls.Client)
	default:
		conn, err = dialer.Dial("tcp", s.Addr)
	}
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, r: bufio.NewReader(conn)}
	if s.secret != "" {
		if _, err := c.Try("AUTH", s.secret); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Try sends one command on a connection of its own.
func (s *Server) Try(args ...string) (any, error) {
	c, err := s.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Try(args...)
}

// Do is Try for commands that must not fail.
func (s *Server) Do(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// Int is Do for commands that answer an integer.
func (s *Server) Int(t testing.TB, args ...string) int64 {
	t.Helper()
	reply := s.Do(t, args...)
	n, ok := reply.(int64)
	if !ok {
		t.Fatalf("%s: %v is no integer", strings.Join(args, " "), reply)
	}
	return n
}

// String is Do for commands that answer a string; nothing is "".
func (s *Server) String(t testing.TB, args ...string) string {
	t.Helper()
	reply := s.Do(t, args...)
	if reply == nil {
		return ""
	}
	text, ok := reply.(string)
	if !ok {
		t.Fatalf("%s: %v is no string", strings.Join(args, " "), reply)
	}
	return text
}

// Info returns a field of INFO.
func (s *Server) Info(t testing.TB, field string) string {
	t.Helper()
	for line := range strings.Lines(s.String(t, "INFO", "all")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	t.Fatalf("INFO has no %s", field)
	return ""
}

// Close closes the connection.
func (c *Client) Close() { c.conn.Close() }

// Try sends one command and returns the reply: int64, string, []any, nil, or an error.
func (c *Client) Try(args ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	c.conn.SetDeadline(time.Now().Add(testserver.Patience))
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, err
	}
	return c.Read()
}

// Read reads one reply, or one message of a subscription.
func (c *Client) Read() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply")
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("reply %q", line)
	}
	if n < 0 {
		return nil, nil
	}
	switch line[0] {
	case '$':
		data := make([]byte, n+2)
		_, err := io.ReadFull(c.r, data)
		return string(data[:n]), err
	case '*':
		list := make([]any, n)
		for i := range list {
			item, err := c.Read()
			if e := ReplyError(""); errors.As(err, &e) {
				item, err = e, nil
			}
			if err != nil {
				return nil, err
			}
			list[i] = item
		}
		return list, nil
	}
	return nil, fmt.Errorf("reply %q", line)
}

// CPU returns the processor time that the server has used so far.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	var total time.Duration
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(s.Info(t, field), 64)
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}
