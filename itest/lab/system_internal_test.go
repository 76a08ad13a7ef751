//go:build unix

package lab

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// A member is cut off from the others by what it says of itself, because all of them come by the
// same address.
func TestSenderOfPeers(t *testing.T) {
	for head, want := range map[string]string{
		"GET /raft/stream/msgapp/1 HTTP/1.1\r\nHost: a\r\nX-Server-From: 8e9e05c52164694d\r\n\r\n": "8e9e05c52164694d",
		"GET /version HTTP/1.1\r\nHost: a\r\n\r\n":                                                 "",
		"x-server-from: 1f\r\n": "1f",
	} {
		if got := sender([]byte(head)); got != want {
			t.Errorf("%q is of %q; want %q", head, got, want)
		}
	}
}

// A fault of one sender hits nobody else on the same link, neither on present connections nor on
// those that are made meanwhile.
func TestLinkHitsOneSender(t *testing.T) {
	server := echoing(t)
	l, err := newLink("peers", &member{name: "n1", addr: server}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.identify(sender)
	cut, other := connect(t, l, "1f"), connect(t, l, "2e")
	cut.echo(t, "before")
	other.echo(t, "before")
	w := way{hold: true, only: "1f"}
	l.set(w, w)
	other.echo(t, "meanwhile")
	connect(t, l, "2e").echo(t, "anew")
	fmt.Fprintln(cut.Conn, "held")
	cut.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if line, err := cut.lines.ReadString('\n'); err == nil {
		t.Errorf("%q came through", line)
	}
	cut.SetReadDeadline(time.Time{})
	l.set(way{}, way{})
	if line, err := cut.lines.ReadString('\n'); line != "held\n" {
		t.Errorf("then came %q, %v", line, err)
	}
}

// echoing returns the address of a server that sends back what it gets.
func echoing(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	return listener.Addr().String()
}

type connection struct {
	net.Conn
	lines *bufio.Reader
}

// connect connects a sender by the link.
func connect(t *testing.T, l *link, sender string) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &connection{conn, bufio.NewReader(conn)}
	c.echo(t, "X-Server-From: "+sender)
	return c
}

// echo sends a line and wants it back.
func (c *connection) echo(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.Conn, line); err != nil {
		t.Fatal(err)
	}
	if got, err := c.lines.ReadString('\n'); got != line+"\n" {
		t.Fatalf("%q came back as %q, %v", line, got, err)
	}
}
