//go:build unix

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
)

// zooKeeper is an ensemble of ZooKeeper servers.
type zooKeeper struct {
	run *run
	all []*member
}

// zooKeeperSession is how long the session of a client outlives it: as zkhold needs it for locks of
// systemTTL.
const zooKeeperSession = 3 * time.Second

func (z *zooKeeper) start(ctx context.Context) error {
	count := z.run.config.Nodes
	addresses, err := freeAddresses(3 * count)
	if err != nil {
		return err
	}
	// Servers of the ensemble wait for each other for a second.
	lines := []string{"initLimit=100", "syncLimit=10"}
	for i := range count {
		host, first, _ := net.SplitHostPort(addresses[3*i+1])
		_, second, _ := net.SplitHostPort(addresses[3*i+2])
		if first == second {
			return errors.New("two ports are the same")
		}
		lines = append(lines, fmt.Sprintf("server.%d=%s:%s:%s", i+1, host, first, second))
	}
	for i := range count {
		m := &member{name: "n" + strconv.Itoa(i+1), addr: addresses[3*i]}
		dir := filepath.Join(z.run.config.Dir, m.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(i+1)),
			0o644); err != nil {
			return err
		}
		path, args, err := zookeepertest.Command(dir, m.addr, lines...)
		if err != nil {
			return err
		}
		m.log = filepath.Join(dir, "log")
		m.command = func() *exec.Cmd { return exec.Command(path, args...) }
		z.all = append(z.all, m)
	}
	return z.run.startAll(z.all)
}

func (z *zooKeeper) members() []*member { return z.all }
func (z *zooKeeper) entries() []*member { return z.all }

func (z *zooKeeper) url(addresses []string) string {
	return fmt.Sprintf("zookeeper://%s?session=%v", strings.Join(addresses, ","), zooKeeperSession)
}

func (z *zooKeeper) unready() ([]string, error) {
	leads := 0
	for _, m := range z.all {
		part, err := zookeepertest.Mode(m.addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		if part == "leader" {
			leads++
		}
	}
	if leads != 1 {
		return []string{fmt.Sprintf("%d leaders", leads)}, nil
	}
	return nil, nil
}

func (z *zooKeeper) leader() (leader *member, err error) {
	left := eventually(context.Background(), patience, func() ([]string, error) {
		leader = nil
		for _, m := range z.all {
			if part, err := zookeepertest.Mode(m.addr); err == nil && part == "leader" {
				leader = m
			}
		}
		if leader == nil {
			return nil, errNoLeader
		}
		return nil, nil
	})
	if left != "" {
		return nil, errors.New(left)
	}
	return leader, nil
}

// brittle returns nothing, because a former leader does nothing without a majority.
func (z *zooKeeper) brittle() string { return "" }

func (z *zooKeeper) left() (found []string, err error) {
	conn, _, err := zk.Connect([]string{z.all[0].addr}, patience, zk.WithLogInfo(false),
		zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	const slots = "/holdfast/slots"
	names, _, err := conn.Children(slots)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		parties, _, err := conn.Children(slots + "/" + name)
		if err != nil {
			return nil, err
		}
		for _, p := range parties {
			found = append(found, "the node "+slots+"/"+name+"/"+p)
		}
	}
	slices.Sort(found)
	return found, nil
}

// silent drops what the client would say.
type silent struct{}

func (silent) Printf(string, ...any) {}

func (z *zooKeeper) stop() { stopAll(z.all) }

var zooKeeperFaults = []fault{
	{name: "session expired", weight: 3, do: func(n *nemesis) {
		// The client lives, and is not heard for longer than its session.
		clients := some(n.draw, n.run.clients)
		var targets []string
		var links []*link
		for _, c := range clients {
			targets, links = append(targets, c.slot), append(links, c.links...)
		}
		over := n.last("session expired", targets, "")
		for _, l := range links {
			l.set(way{hold: true}, way{hold: true})
		}
		time.Sleep(n.between(zooKeeperSession, zooKeeperSession*3/2))
		for _, l := range links {
			l.set(way{}, way{})
		}
		over()
	}},
}
