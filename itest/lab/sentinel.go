//go:build unix

package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/itest/history"
)

// sentinel watches over a primary and its replica. It finds none of them down: the nemesis draws
// which one takes over, and when.
type sentinel struct {
	*redistest.Server
	process *process
}

func (s *sentinel) url() string {
	return "redis+sentinel://" + s.Addr + "/" + redistest.PrimaryName
}

// primary returns the address that it tells clients.
func (s *sentinel) primary() (string, error) {
	reply, err := s.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.PrimaryName)
	parts, _ := reply.([]any)
	if err != nil || len(parts) != 2 {
		return "", fmt.Errorf("the Sentinel tells %v, %w", reply, err)
	}
	return net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1])), nil
}

// startSentinel starts two servers, the second as replica of the first, and a Sentinel. All of them
// know each server by its link, which all share.
func (r *run) startSentinel(ctx context.Context) (err error) {
	prepare := func(n *Node) error {
		l, err := newLink("all", n, r.config.Latency)
		if err != nil {
			return err
		}
		r.shared = append(r.shared, l)
		host, port, _ := net.SplitHostPort(l.address())
		n.extra = []string{"--replica-announce-ip", host, "--replica-announce-port", port}
		return nil
	}
	var stop func()
	if r.nodes, stop, err = startNodes(ctx, r.config.Dir, r.config.Nodes, r.config.Persistence,
		prepare); err != nil {
		return err
	}
	r.stopNodes = stop
	if err := r.follow(1, 0); err != nil {
		return err
	}
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.config.Dir, "sentinel")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(addr)
	primaryHost, primaryPort, _ := net.SplitHostPort(r.shared[0].address())
	const name = redistest.PrimaryName
	file := filepath.Join(dir, "sentinel.conf")
	lines := []string{"port " + port, "bind " + host, "protected-mode no", "dir " + dir,
		"sentinel monitor " + name + " " + primaryHost + " " + primaryPort + " 1",
		"sentinel down-after-milliseconds " + name + " 600000", "sentinel failover-timeout " +
			name + " 10000", ""}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	r.sentinel = &sentinel{Server: &redistest.Server{Addr: addr}}
	if r.sentinel.process, err = start(exec.Command("redis-server", file, "--sentinel"),
		filepath.Join(dir, "log")); err != nil {
		return err
	}
	r.stopNodes = func() {
		r.sentinel.process.kill()
		stop()
	}
	if left := eventually(ctx, patience, r.unknownReplica); left != "" {
		return fmt.Errorf("the Sentinel does not know both servers: %s", left)
	}
	return nil
}

// follow makes a server the replica of another one.
func (r *run) follow(replica, primary int) error {
	host, port, _ := net.SplitHostPort(r.shared[primary].address())
	_, err := r.nodes[replica].Do("REPLICAOF", host, port)
	return err
}

// unknownReplica says what is wrong while the Sentinel does not know of a replica that has the
// primary's data.
func (r *run) unknownReplica() ([]string, error) {
	reply, err := r.sentinel.Try("SENTINEL", "REPLICAS", redistest.PrimaryName)
	if text := fmt.Sprint(reply); err == nil && !strings.Contains(text, "master-link-status ok") {
		return []string{text}, nil
	}
	return nil, err
}

// failover makes the replica take over. The replica may have been cut off from the primary for a
// while.
func (n *nemesis) failover() {
	r := n.run
	if left := eventually(context.Background(), patience, r.unknownReplica); left != "" {
		r.fail(fmt.Errorf("the replica is not up to date: %s", left))
		return
	}
	address, err := r.sentinel.primary()
	if err != nil {
		r.fail(err)
		return
	}
	from, to := 0, 1
	if address != r.shared[0].address() {
		from, to = 1, 0
	}
	over := n.during(history.Record{Name: "failover", Target: targets(r.nodes), Breaks: takeover,
		Forget: true})
	defer over()
	former := r.nodes[from]
	cut := n.draw.IntN(2) == 0
	if cut {
		n.do(former, "ACL", "SETUSER", "default", "-psync", "-sync")
		n.do(former, "CLIENT", "KILL", "TYPE", "replica")
		time.Sleep(n.while())
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r.sentinel.Try("SENTINEL", "FAILOVER", redistest.PrimaryName) // an error if it is under way
		if address, err := r.sentinel.primary(); err == nil && address == r.shared[to].address() {
			break
		}
		if time.Now().After(deadline) {
			r.fail(fmt.Errorf("%s does not take over", r.nodes[to].Name))
			break
		}
	}
	time.Sleep(n.while()) // there are two primaries for so long
	n.do(former, "ACL", "SETUSER", "default", "+psync", "+sync")
	if err := r.follow(from, to); err != nil {
		r.fail(err)
	}
}
