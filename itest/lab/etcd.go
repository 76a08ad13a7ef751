//go:build unix

package lab

import (
	"context"
	"fmt"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/itest/history"
)

// etcd is an etcd cluster. Its members know each other by links, one in front of each, so they can
// be cut off from each other.
type etcd struct {
	run     *run
	all     []*member
	peers   []*link            // to the member of the same number, for the others
	clients []*clientv3.Client // of the laboratory, to the member of the same number
}

// peer is a member as the other members know it.
type peer struct {
	*member
	addr string
}

func (p *peer) entry() string { return p.addr }

// How often a leader says that it is there, and after how much silence another one is elected, in
// milliseconds. Leases are one and a half of the latter at least.
const etcdHeartbeat, etcdElection = "100", "1000"

// start is one function because the members have to know of each other before any is started.
func (e *etcd) start(ctx context.Context) error {
	program, err := testserver.Find("etcd", "etcd-server")
	if err != nil {
		return err
	}
	var cluster []string
	addresses, err := freeAddresses(2 * e.run.config.Nodes)
	if err != nil {
		return err
	}
	for i := range e.run.config.Nodes {
		m := &member{name: "n" + strconv.Itoa(i+1), addr: addresses[2*i]}
		l, err := newLink("peers", &peer{m, addresses[2*i+1]}, 0)
		if err != nil {
			return err
		}
		l.identify(sender)
		e.all, e.peers = append(e.all, m), append(e.peers, l)
		cluster = append(cluster, m.name+"=http://"+l.address())
	}
	for i, m := range e.all {
		dir := filepath.Join(e.run.config.Dir, m.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		m.log = filepath.Join(dir, "log")
		m.command = func() *exec.Cmd {
			cmd := exec.Command(program, "--name", m.name, "--data-dir", filepath.Join(dir, "data"),
				"--logger", "zap", "--log-level", "error",
				"--listen-client-urls", "http://"+m.addr, "--advertise-client-urls", "http://"+m.addr,
				"--listen-peer-urls", "http://"+addresses[2*i+1],
				"--initial-advertise-peer-urls", "http://"+e.peers[i].address(),
				"--initial-cluster", strings.Join(cluster, ","),
				"--heartbeat-interval", etcdHeartbeat, "--election-timeout", etcdElection)
			// The crash of a process loses nothing by that, and a slow disk is no fault here.
			cmd.Env = append(os.Environ(), "ETCD_UNSAFE_NO_FSYNC=true")
			return cmd
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.addr},
			Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		e.clients = append(e.clients, client)
	}
	return e.run.startAll(e.all)
}

// brittle is the same for all versions, though newer ones break it more rarely.
func (e *etcd) brittle() string { return revokes }

// sender returns the ID of the member that sent what begins with head; empty if that does not say.
func sender(head []byte) string {
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(line, ":")
		if textproto.CanonicalMIMEHeaderKey(name) == "X-Server-From" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (e *etcd) members() []*member { return e.all }
func (e *etcd) entries() []*member { return e.all }

func (e *etcd) url(addresses []string) string { return "etcd://" + strings.Join(addresses, ",") }

// statuses asks each member who leads.
func (e *etcd) statuses() (all []*clientv3.StatusResponse, err error) {
	for i, c := range e.clients {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		status, err := c.Status(ctx, e.all[i].addr)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.all[i].name, err)
		}
		all = append(all, status)
	}
	return all, nil
}

func (e *etcd) unready() ([]string, error) {
	all, err := e.statuses()
	if err != nil {
		return nil, err
	}
	for i, s := range all {
		if s.Leader == 0 || s.Leader != all[0].Leader {
			return []string{e.all[i].name + " does not know the leader"}, nil
		}
	}
	return nil, nil
}

// leading returns the number of the member that leads, and its ID.
func (e *etcd) leading() (number int, id string, err error) {
	all, err := e.statuses()
	if err != nil {
		return 0, "", err
	}
	for i, s := range all {
		if s.Header.MemberId == s.Leader {
			return i, strconv.FormatUint(s.Leader, 16), nil
		}
	}
	return 0, "", errNoLeader
}

func (e *etcd) leader() (m *member, err error) {
	left := eventually(context.Background(), patience, func() ([]string, error) {
		number, _, err := e.leading()
		if err == nil {
			m = e.all[number]
		}
		return nil, err
	})
	if left != "" {
		return nil, fmt.Errorf("%w: %s", errNoLeader, left)
	}
	return m, nil
}

func (e *etcd) left() (found []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := e.clients[0].Get(ctx, etcdhold.DefaultKeyspace+"lock/", clientv3.WithPrefix(),
		clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range keys.Kvs {
		found = append(found, fmt.Sprintf("the key %q", kv.Key))
	}
	leases, err := e.clients[0].Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases.Leases {
		found = append(found, fmt.Sprintf("the lease %x", l.ID))
	}
	return found, nil
}

func (e *etcd) stop() {
	for _, c := range e.clients {
		c.Close()
	}
	stopAll(e.all)
	for _, l := range e.peers {
		l.close()
	}
}

var etcdFaults = []fault{
	{name: "leader cut off", weight: 4, do: func(n *nemesis) {
		e := n.run.system.(*etcd)
		number, id, err := e.leading()
		if err != nil {
			return // another one is elected just now
		}
		over := n.last("leader cut off", []string{e.all[number].name}, "")
		for i, l := range e.peers {
			w := way{hold: true, only: id}
			if i == number {
				w.only = ""
			}
			l.set(w, w)
		}
		// This is mostly long enough for the others to elect another one.
		time.Sleep(n.between(n.run.config.TTL/4, 2*n.run.config.TTL))
		for _, l := range e.peers {
			l.set(way{}, way{})
		}
		over()
	}},
	{name: "slow peers", weight: 2, do: func(n *nemesis) {
		e := n.run.system.(*etcd)
		over := n.last("slow peers", namesOf(e.all), "")
		for _, l := range some(n.draw, e.peers) {
			l.set(way{delay: n.between(0, n.run.config.TTL/8)}, way{})
		}
		time.Sleep(n.while())
		for _, l := range e.peers {
			l.set(way{}, way{})
		}
		over()
	}},
	{name: "leader moved", weight: 2, do: func(n *nemesis) {
		e := n.run.system.(*etcd)
		all, err := e.statuses()
		if err != nil {
			return
		}
		to := n.draw.IntN(len(all))
		over := n.last("leader moved", namesOf(e.all), "")
		defer over()
		for i, s := range all {
			if s.Header.MemberId == s.Leader && i != to {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				e.clients[i].MoveLeader(ctx, all[to].Header.MemberId) // or another one is elected
				cancel()
			}
		}
	}},
	{name: "compaction", weight: 1, do: func(n *nemesis) {
		e := n.run.system.(*etcd)
		start := history.Now()
		all, err := e.statuses()
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// What was before cannot be watched any more.
		e.clients[0].Compact(ctx, all[0].Header.Revision)
		n.run.log.Add(history.Record{Kind: history.Fault, At: start, Until: history.Now(),
			Name: "compaction", Drawn: n.drawn, Target: joined(e.all)})
	}},
}
