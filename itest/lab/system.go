//go:build unix

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// System is what is locked on.
type System string

// The systems.
const (
	Redis     System = ""
	Etcd      System = "etcd"
	Postgres  System = "PostgreSQL"
	ZooKeeper System = "ZooKeeper"
)

// systemModes names what there is of each.
var systemModes = map[System]string{
	Etcd:      "etcd, a cluster of 3",
	Postgres:  "PostgreSQL with a standby",
	ZooKeeper: "ZooKeeper, an ensemble of 3",
}

// What a standby has of what the primary has answered.
const (
	Confirmed   Persistence = "confirmed by the standby"
	Unconfirmed Persistence = "unconfirmed by the standby"
)

// systemTTL is the TTL of locks on other systems than Redis: it takes a second or two until another
// leads, and most locks are to outlast that.
const systemTTL = 2 * time.Second

// lingers says by how much the lease of a killed process may outlive a TTL of systemTTL.
var lingers = map[System]time.Duration{
	// etcd's lease is a second longer. A leader that was elected meanwhile counts it anew. It is
	// looked at every half second.
	Etcd: 5 * time.Second,
	// A session is half as long again. The next leader counts it anew, and its servers have to be
	// found first.
	ZooKeeper: 2*zooKeeperSession - systemTTL + time.Second,
	// A request that hangs is given up after five seconds, and those behind it wait as long.
	Postgres: 4 * time.Second,
}

// system is what clients lock on, if it is not Redis: servers that are one to their clients.
type system interface {
	// start starts the servers, and waits until they serve.
	start(ctx context.Context) error
	// members are all of them.
	members() []*member
	// entries are the members that clients connect to.
	entries() []*member
	// url returns the URL by which a client names them, from the addresses of its links to the
	// entries.
	url(addresses []string) string
	// unready says what is wrong while not all of them serve.
	unready() ([]string, error)
	// leader is the one that the others follow.
	leader() (*member, error)
	// brittle returns the assumption that is broken if the leader stands still, is replaced, and
	// goes on; empty if that breaks none.
	brittle() string
	// left returns what is left of locks that would be in the way of others.
	left() ([]string, error)
	// stop ends what start has started.
	stop()
}

// systems make a system of each kind for a run.
var systems = map[System]func(*run) system{
	Etcd:      func(r *run) system { return &etcd{run: r} },
	Postgres:  func(r *run) system { return &postgres{run: r} },
	ZooKeeper: func(r *run) system { return &zooKeeper{run: r} },
}

// member is one server of a system.
type member struct {
	name    string
	addr    string // host:port for clients
	log     string // file
	command func() *exec.Cmd
	process *process // nil before it is first started
}

func (m *member) label() string { return m.name }
func (m *member) entry() string { return m.addr }

func (m *member) requests(from io.Reader) func(single func() bool) ([]byte, error) {
	return whatever(from)
}

func (m *member) start() (err error) {
	m.process, err = start(m.command(), m.log)
	return err
}

// kill kills the server. It fails as [Node.Kill] does.
func (m *member) kill() error {
	if m.process == nil || !m.process.kill() {
		return nil
	}
	return m.ended()
}

// ended returns the error of a server that has ended by itself.
func (m *member) ended() error {
	text, _ := os.ReadFile(m.log)
	return fmt.Errorf("%s ended by itself: %s", m.name, text[max(0, len(text)-4000):])
}

// targets returns what the links of clients lead to.
func (r *run) targets() (all []target) {
	if r.system != nil {
		for _, m := range r.system.entries() {
			all = append(all, m)
		}
		return all
	}
	for _, n := range r.nodes {
		all = append(all, n)
	}
	return all
}

// startAll starts servers, and waits until all of the system serve.
func (r *run) startAll(members []*member) error {
	for _, m := range members {
		if err := m.start(); err != nil {
			return err
		}
	}
	return r.ready()
}

// ready waits until all servers of the system serve.
func (r *run) ready() error {
	left := eventually(context.Background(), patience, func() ([]string, error) {
		for _, m := range r.system.members() {
			if m.process != nil && m.process.ended() && !m.process.told.Load() {
				return []string{m.ended().Error()}, nil
			}
		}
		return r.system.unready()
	})
	if left != "" {
		return fmt.Errorf("the servers do not serve: %s", left)
	}
	return nil
}

// inspectSystem looks at what is left, as [run.inspect] does.
func (r *run) inspectSystem(ctx context.Context) {
	for _, m := range r.system.members() {
		if m.process.ended() {
			r.crashed(m.kill())
		}
	}
	within := r.config.TTL + r.config.Linger + r.config.Patience
	if left := eventually(ctx, within, r.connections); left != "" {
		r.violated("leaks", "there still are connections: %s", left)
	}
	if left := eventually(ctx, within, r.system.left); left != "" {
		r.violated("orphans", "there still are %s", left)
	}
}

// connections returns the connections that clients have.
func (r *run) connections() (found []string, err error) {
	for _, c := range r.clients {
		for _, l := range c.links {
			if n := l.open(); n > 0 {
				found = append(found, fmt.Sprintf("%d of %s to %s", n, c.name, l.node.label()))
			}
		}
	}
	return found, nil
}

func namesOf(members []*member) (names []string) {
	for _, m := range members {
		names = append(names, m.name)
	}
	return names
}

// memberFaults are what happens to servers of any system but Redis. No server loses what it has
// answered.
var memberFaults = []fault{
	{name: "freeze", weight: 5, do: func(n *nemesis) {
		members, breaks := n.still(some(n.draw, n.run.system.members()))
		n.freezeMembers("freeze", members, breaks)
	}},
	{name: "restart", weight: 4, do: func(n *nemesis) {
		n.restartMembers("restart", some(n.draw, n.run.system.members()), n.while())
	}},
	{name: "rolling restart", weight: 1, do: func(n *nemesis) {
		for _, m := range n.run.system.members() {
			n.restartMembers("rolling restart", []*member{m}, 100*time.Millisecond)
		}
	}},
	{name: "slow server", weight: 3, do: func(n *nemesis) {
		// They run for a moment now and then.
		members, breaks := n.still(some(n.draw, n.run.system.members()))
		over := n.last("slow server", namesOf(members), "")
		defer n.goesOn(history.Now(), breaks)
		for end := time.Now().Add(n.while()); time.Now().Before(end); {
			each(members, (*process).freeze)
			time.Sleep(n.between(10*time.Millisecond, 100*time.Millisecond))
			each(members, (*process).thaw)
			time.Sleep(n.between(5*time.Millisecond, 30*time.Millisecond))
		}
		over()
	}},
	{name: "leader killed", weight: 4, only: elects, do: func(n *nemesis) {
		n.withLeader(func(leader *member) {
			n.restartMembers("leader killed", []*member{leader}, n.while())
		})
	}},
	{name: "leader frozen", weight: 4, only: func(c *Config) bool {
		return elects(c) && (c.Limits || c.System != Etcd)
	}, do: func(n *nemesis) {
		n.withLeader(func(leader *member) {
			n.freezeMembers("leader frozen", []*member{leader}, n.run.system.brittle())
		})
	}},
}

// faultsOf has what happens to servers of one system only.
var faultsOf = map[System][]fault{
	Etcd: etcdFaults, Postgres: postgresFaults, ZooKeeper: zooKeeperFaults,
}

func elects(c *Config) bool { return c.System == Etcd || c.System == ZooKeeper }

func each(members []*member, do func(*process)) {
	for _, m := range members {
		do(m.process)
	}
}

// withLeader calls f for the present leader, if there is one.
func (n *nemesis) withLeader(f func(*member)) {
	leader, err := n.run.system.leader()
	if err != nil {
		n.run.fail(fmt.Errorf("find the leader: %w", err))
		return
	}
	f(leader)
}

// still returns those of the servers that may stand still, and the assumption that this breaks. If
// none may be broken, the leader is left out, or another server takes its place.
func (n *nemesis) still(members []*member) (allowed []*member, breaks string) {
	breaks = n.run.system.brittle()
	if breaks == "" {
		return members, ""
	}
	leader, err := n.run.system.leader()
	if err != nil {
		n.run.fail(fmt.Errorf("find the leader: %w", err))
	}
	if !slices.Contains(members, leader) {
		return members, ""
	}
	if n.run.config.Limits {
		return members, breaks
	}
	isLeader := func(m *member) bool { return m == leader }
	if members = slices.DeleteFunc(members, isLeader); len(members) == 0 {
		members = slices.DeleteFunc(slices.Clone(n.run.system.members()), isLeader)[:1]
	}
	return members, ""
}

// goesOn records that a leader that has stood still since that moment goes on, if this breaks an
// assumption. That is when it does the most harm.
func (n *nemesis) goesOn(since int64, breaks string) {
	if breaks != "" {
		n.run.log.Add(history.Record{Kind: history.Fault, At: since,
			Until: history.Now() + int64(n.run.config.TTL), Name: "a former leader goes on",
			Target: joined(n.run.system.members()), Breaks: breaks})
	}
}

func (n *nemesis) freezeMembers(name string, members []*member, breaks string) {
	over := n.last(name, namesOf(members), "")
	defer n.goesOn(history.Now(), breaks)
	each(members, (*process).freeze)
	time.Sleep(n.while())
	each(members, (*process).thaw)
	over()
	// All are to serve before the next one is drawn.
	if err := n.run.ready(); err != nil {
		n.run.fail(err)
	}
}

// restartMembers kills servers, leaves them down for some time, and starts them on what they have.
func (n *nemesis) restartMembers(name string, members []*member, down time.Duration) {
	over := n.during(history.Record{Name: name, Target: joined(members)})
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(func() { n.run.crashed(m.kill()) })
	}
	all.Wait()
	time.Sleep(down)
	if err := n.run.startAll(members); err != nil {
		n.run.fail(err)
	}
	over()
}

// stopAll kills all servers that were started.
func stopAll(members []*member) {
	for _, m := range members {
		if m.process != nil {
			m.process.kill()
		}
	}
}

// freeAddresses returns so many free addresses.
func freeAddresses(count int) (all []string, err error) {
	for range count {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// errNoLeader is the error of servers without a leader.
var errNoLeader = errors.New("there is no leader")

// joined names servers as the record of a fault does.
func joined(members []*member) string { return strings.Join(namesOf(members), " ") }
