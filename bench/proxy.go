package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// proxyVariable is in the environment of a proxy, which is this program, started again: in a process of its own it
// takes no part in what is counted of the drivers' process.
const proxyVariable = "HOLDFAST_BENCH_PROXY"

// proxy is a process that passes on what a server answers some time later.
type proxy struct {
	address string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startProxy(ctx context.Context, target string) (*proxy, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &proxy{cmd: exec.CommandContext(ctx, executable)}
	p.cmd.Env = append(os.Environ(), proxyVariable+"="+target)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := start(p.cmd); err != nil {
		return nil, err
	}
	if p.address, err = p.line(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *proxy) line() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("proxy: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// delay sets by how much later answers arrive, for all that the server sends from now on.
func (p *proxy) delay(d time.Duration) error {
	fmt.Fprintln(p.in, d)
	_, err := p.line()
	return err
}

func (p *proxy) stop() {
	p.in.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// runProxy is the main function of a proxy. It ends when its standard input does.
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

// passLater keeps the order of what the server sends, and lets any amount of it be under way.
func passLater(client, server net.Conn, delay *atomic.Int64) {
	defer client.Close()
	underWay := make(chan late, 1<<16)
	go func() {
		defer close(underWay)
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if n > 0 {
				underWay <- late{append([]byte(nil), buffer[:n]...), time.Now().Add(time.Duration(delay.Load()))}
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

// waitUntil is more exact than Go's timers, which may be late by as much as the delays to be made: they wait in whole
// milliseconds when nothing else goes on.
func waitUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		t := unix.NsecToTimespec(int64(left))
		if err := unix.Nanosleep(&t, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
