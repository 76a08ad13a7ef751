package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// proxyVariable is the environment variable that makes this program a proxy. A proxy is a process
// of its own, so that its processor time is not counted as the driver's.
const proxyVariable = "HOLDFAST_BENCH_PROXY"

// proxy is a process that delays the answers of a server.
type proxy struct {
	*child
	address string
}

func startProxy(ctx context.Context, target string) (*proxy, error) {
	c, err := startChild(itself(ctx, proxyVariable, target))
	if err != nil {
		return nil, err
	}
	address, err := c.line()
	return &proxy{c, address}, err
}

// delay sets how much later answers arrive that the server sends from now on.
func (p *proxy) delay(d time.Duration) error {
	_, err := p.ask(d)
	return err
}

// runProxy is the main function of a proxy. It returns when its stdin ends.
func runProxy(target string, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var delay atomic.Int64
	fmt.Fprintln(out, l.Addr())
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				io.Copy(server, client)
				server.Close()
			}()
			go passLater(client, server, &delay)
		}
	}()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		delay.Store(int64(d))
		fmt.Fprintln(out, "ok")
	}
	return lines.Err()
}

type late struct {
	data []byte
	due  time.Time
}

// passLater passes the server's answers on in their order. Any number of answers may be under way.
func passLater(client, server net.Conn, delay *atomic.Int64) {
	defer client.Close()
	underWay := make(chan late, 1<<16)
	go func() {
		defer close(underWay)
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if n > 0 {
				underWay <- late{append([]byte(nil), buffer[:n]...),
					time.Now().Add(time.Duration(delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for l := range underWay {
		waitUntil(l.due)
		if _, err := client.Write(l.data); err != nil {
			server.Close()
			for range underWay {
			}
			return
		}
	}
}

// waitUntil sleeps until due. Go's timers may be late by a millisecond in an idle process, which is
// as much as the delays here.
func waitUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		t := unix.NsecToTimespec(int64(left))
		if err := unix.Nanosleep(&t, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
