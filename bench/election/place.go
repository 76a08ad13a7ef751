//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// contender is a way to elect.
type contender struct {
	name string
	kind string // the kind that the candidates are told
	open func() (*place, error)
}

// place is where candidates meet.
type place struct {
	// scheme stands before the address of the wire by which a candidate reaches the server.
	scheme, network, server string
	directory               string // in place of a server
	close                   func()
	// how many requests come in a span; nil: there is no server
	requests func(ctx context.Context, span time.Duration) (float64, error)
}

var contenders = []contender{
	{"holdfast, Redis", "redis", openRedis},
	{"holdfast, directory", "directory", openDirectory},
	{"etcd concurrency.Election", "etcd", openEtcd},
	{"client-go, record in etcd", "client-go", openEtcd},
	{"the same with ReleaseOnCancel", "client-go-release", openEtcd},
	{"Consul, api.Lock", "consul", openConsul},
}

func openDirectory() (*place, error) {
	dir, err := os.MkdirTemp("", "election")
	return &place{directory: dir, close: func() { os.RemoveAll(dir) }}, err
}

func openRedis() (*place, error) {
	dir, err := os.MkdirTemp("", "election")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	listener.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir)
	if err := testserver.StartProcess(cmd); err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{Addr: address, PoolSize: 1, MaxRetries: -1,
		Protocol: 2, DisableIdentity: true})
	ctx := context.Background()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = client.Ping(ctx).Err(); err == nil || time.Now().After(deadline) {
			break
		}
	}
	return &place{scheme: "redis://", network: "tcp", server: address, close: func() {
		client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		os.RemoveAll(dir)
	}, requests: func(_ context.Context, span time.Duration) (float64, error) {
		return monitored(address, span)
	}}, err
}

// monitored returns how many requests a Redis gets in a span, by MONITOR. The statistics of the
// server would count the commands of scripts, too.
func monitored(address string, span time.Duration) (n float64, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(span)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if text := lines.Text(); text != "+OK" && !strings.Contains(text, " lua] ") {
			n++
		}
	}
	if err := lines.Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("MONITOR has ended: %w", err)
	}
	return n, nil
}

func openEtcd() (*place, error) {
	s, err := etcdtest.Start()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Clean(s.Socket))
		}}}
	return &place{network: "unix", server: s.Socket, close: func() { _ = s.Remove() },
		requests: func(ctx context.Context, span time.Duration) (float64, error) {
			before, err := messages(ctx, client)
			if err != nil {
				return 0, err
			}
			time.Sleep(span)
			after, err := messages(ctx, client)
			return after - before, err
		}}, nil
}

// messages returns how many messages of clients an etcd has received. Those that keep a lease alive
// are messages of one long call.
func messages(ctx context.Context, client *http.Client) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		if strings.HasPrefix(s.Text(), "grpc_server_msg_received_total{") {
			n, err := strconv.ParseFloat(s.Text()[strings.LastIndexByte(s.Text(), ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
