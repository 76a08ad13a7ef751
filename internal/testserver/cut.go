package testserver

import (
	"io"
	"net"
	"sync/atomic"
)

// Cut is a connection that breaks after Left bytes of answers.
type Cut struct {
	net.Conn
	Left *atomic.Int64 // bytes; while it is negative the connection does not break
}

// Read reads what is left, and closes the connection at the end of that.
func (c Cut) Read(p []byte) (int, error) {
	left := c.Left.Load()
	if left < 0 {
		return c.Conn.Read(p)
	}
	if left == 0 {
		c.Conn.Close()
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.Left.Add(-int64(n))
	return n, err
}

// Pass copies what from sends to the other connection, as long as may allows each piece. Then it
// closes both.
func Pass(from, to net.Conn, may func([]byte) bool) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil || !may(b[:n]) {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
