package redismodel

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Options are the options of a Server. The zero value is the default.
type Options struct {
	// Name is what errors call the server. Default "redis-" and a number.
	Name string

	// Version is the version that it reports. Default 7.0.15.
	Version string

	// Offset is how much its clock is ahead of package time; negative for behind.
	Offset time.Duration

	// Rate is how fast its clock runs. Default 1.
	Rate float64

	// Between is called between any two commands that were sent together, before next is carried
	// out: the moment for what other clients do. It may use all methods of the Server and its
	// Clients, and must not wait. Default none.
	Between func(c *Client, next protocol.Command)
}

// Server is one Redis server. Its methods are safe for concurrent use and take effect at once.
type Server struct {
	name    string
	version string
	between func(c *Client, next protocol.Command)

	mu        sync.Mutex
	wall      wall
	now       time.Time // what wall showed when the command under way began
	data      map[string]*value
	scripts   map[string]*script // by SHA: those it has loaded
	settings  map[string]string
	forbidden map[string]bool
	runID     string
	history   string // master_replid
	former    string // master_replid2
	started   time.Time
	primary   string // address, of a replica
	replicas  int    // how many confirm what is written
	stopped   bool
	paused    bool

	conns    []*conn
	lastID   int64
	current  *conn      // whose command is under way; nil if nobody's
	ready    []*conn    // with something to deliver once mu is free
	stranded []stranded // of Libraries, what could not go on
}

var serial atomic.Int64

// identifier returns 40 hexadecimal digits that were not returned before.
func identifier() string {
	sum := sha1.Sum(fmt.Appendf(nil, "redismodel %d", serial.Add(1)))
	return hex.EncodeToString(sum[:])
}

// New returns a server without data that has just started.
func New(o Options) *Server {
	if o.Name == "" {
		o.Name = fmt.Sprintf("redis-%d", serial.Add(1))
	}
	if o.Version == "" {
		o.Version = "7.0.15"
	}
	if o.Rate == 0 {
		o.Rate = 1
	}
	s := &Server{
		name: o.Name, version: o.Version, between: o.Between,
		settings: map[string]string{
			"appendonly": "no", "appendfsync": "everysec", "no-appendfsync-on-rewrite": "no",
			"save":      "",
			"maxmemory": "0", "maxmemory-policy": "noeviction", "proto-max-bulk-len": "536870912",
		},
		forbidden: make(map[string]bool),
	}
	s.wall.set(time.Now().Add(o.Offset), o.Rate)
	s.run(nil)
	return s
}

// run begins a run of the server. Called with mu held.
func (s *Server) run(on *Snapshot) {
	s.data = make(map[string]*value)
	if on != nil {
		s.data = cloneData(on.data)
	}
	s.now = s.wall.now()
	s.started = s.now
	s.scripts = make(map[string]*script)
	s.runID, s.history, s.former = identifier(), identifier(), noHistory
	s.stopped, s.paused = false, false
	s.conns = nil
}

// unlock frees mu and delivers what is ready.
func (s *Server) unlock() {
	ready := s.ready
	s.ready = nil
	s.mu.Unlock()
	for _, c := range ready {
		c.deliver()
	}
}

// Stop ends the server's run, as kill -9 would: replies that it has sent still arrive, and after
// them the end of the connection. Nobody can connect until [Server.Start].
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.unlock()
	s.stop()
}

func (s *Server) stop() {
	s.stopped = true
	for _, c := range s.conns {
		c.end(errReset)
	}
	s.conns = nil
}

// Start begins another run of the server, with that data: nil makes it forget everything, and an
// older Snapshot makes it go back to what it was then. What has expired since is not there. A
// server that runs is stopped first.
func (s *Server) Start(on *Snapshot) {
	s.mu.Lock()
	defer s.unlock()
	s.stop()
	s.run(on)
}

// Restart begins another run of the server on the data that it has.
func (s *Server) Restart() { s.Start(s.Snapshot()) }

// Pause stops the server, as SIGSTOP would: connections stay open, can be made, and carry requests,
// but nothing is answered until [Server.Resume].
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Resume lets a paused server go on, first with the requests that came in meanwhile, in the order
// of their arrival.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.unlock()
	s.paused = false
	s.wake()
}

// wake goes on with all connections that were held up. Called with mu held.
func (s *Server) wake() {
	for {
		var first *conn
		for _, c := range s.conns {
			if c.due() && (first == nil || c.in[0].arrives.Before(first.in[0].arrives)) {
				first = c
			}
		}
		if first == nil {
			break
		}
		first.serve(1)
	}
	for _, c := range slices.Clone(s.conns) {
		c.serve(0)
		s.ready = append(s.ready, c)
	}
	again := s.stranded
	s.stranded = nil
	for _, a := range again {
		// as long as a reply, because Request would be drawn for another request
		a.trip.after(draw(a.trip.library.link.Reply), a.goOn)
	}
}

// ReplicaOf makes the server a read-only replica with the primary's data, or with its own if
// primary is nil. What the primary does later does not come to it. Connections stay.
func (s *Server) ReplicaOf(primary *Server) {
	name, data, history := "elsewhere:6379", (*Snapshot)(nil), ""
	if primary != nil {
		name, data, history = primary.name, primary.Snapshot(), primary.historyID()
	}
	s.mu.Lock()
	defer s.unlock()
	s.primary = name
	if data != nil {
		s.data = cloneData(data.data)
		s.history, s.former = history, noHistory
		s.tellEmptied()
	}
}

// Promote ends being a replica.
func (s *Server) Promote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.primary != "" {
		s.primary, s.history, s.former = "", identifier(), s.history
	}
}

// noHistory is what master_replid2 is of a server that has always been a primary.
var noHistory = strings.Repeat("0", 40)

func (s *Server) historyID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history
}

// tellEmptied tells connections that asked for it that all data are gone. Called with mu held.
func (s *Server) tellEmptied() {
	for _, c := range s.conns {
		if c.tracking {
			c.push(delivery{emptied: true})
		}
	}
}

// SetReplicas says how many replicas confirm what is written (WAIT).
func (s *Server) SetReplicas(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = n
}

// Configure changes a setting, as CONFIG SET would. It only changes what the server tells. Whether
// the server forgets depends on [Server.Start].
func (s *Server) Configure(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings[name] = value
}

// Forbid makes the server refuse those commands, as an ACL would, and no others. Names are in
// capital letters.
func (s *Server) Forbid(commands ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden = make(map[string]bool)
	for _, name := range commands {
		s.forbidden[name] = true
	}
}

// Do carries out a command, whatever state the server is in, as a foreign client would or for a
// test that looks at the data. It needs no connection.
func (s *Server) Do(command ...string) protocol.Reply {
	s.mu.Lock()
	defer s.unlock()
	return s.perform(nil, command)
}

// Evict removes a key, as memory pressure or somebody's DEL would, and reports whether it was
// there.
func (s *Server) Evict(key string) bool { return s.Do("DEL", key).Int == 1 }

// Get returns a string value; empty if there is none.
func (s *Server) Get(key string) string { return s.Do("GET", key).Str }

// Keys returns the names of all keys that have not expired, in order: locks, queues and waiters,
// and whatever else was left behind. It leaves out those that stay for good: fences, the set of
// nodes, and the memory.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.wall.now()
	return slices.DeleteFunc(s.liveKeys(), func(key string) bool {
		return strings.HasPrefix(key, fencePrefix) || key == setKey || key == memoryKey
	})
}

// fencePrefix begins the keys of fences.
var fencePrefix, _, _ = strings.Cut(protocol.KeysOf("x").Fence, "{")

// setKey is where a server remembers which set of nodes it belongs to.
const setKey = protocol.Namespace + "s"

// memoryKey is where it remembers since when it has had its data.
const memoryKey = protocol.Namespace + "m:{" + setKey + "}"

// Name returns what errors call the server.
func (s *Server) Name() string { return s.name }

// RunID returns the identity of the server's run.
func (s *Server) RunID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runID
}
