//go:build unix

package lab

import (
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// Persistence is what a server keeps through a restart.
type Persistence string

// The kinds of persistence.
const (
	Memory   Persistence = "memory"   // nothing
	EverySec Persistence = "everysec" // an append-only file, synced every second
	Always   Persistence = "always"   // an append-only file, synced before every answer
)

// patience bounds every wait for a server or a client. It is long because the machine may be busy.
const patience = 2 * time.Minute

// Node is one redis-server.
type Node struct {
	Name        string      // n1 and so on
	Addr        string      // host:port
	Persistence Persistence // what it keeps
	Mute        bool        // it refuses every subscription from its next start on
	dir         string
	extra       []string // arguments of the server
	secure      *secure  // how clients are served; nil for without TLS
	clock       clock
	library     string // preload, built
	// what it keeps was changed while it ran, so it may come back with older data
	unsure  bool
	process *process
}

//go:embed preload
var preload embed.FS

// buildPreload builds the library that servers are started with: it steps wall clocks, and notes
// what is on the disk.
func buildPreload(ctx context.Context, dir string) (library string, err error) {
	if err := os.CopyFS(dir, preload); err != nil {
		return "", err
	}
	library = filepath.Join(dir, "preload.so")
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-o", library,
		filepath.Join(dir, "preload", "wallclock.c"), filepath.Join(dir, "preload", "disk.c")}
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the library for servers: %w: %s", err, out)
	}
	return library, nil
}

// newNode makes a server with a directory of its own below dir, to be started.
func newNode(name string, persistence Persistence, dir, library string) (n *Node, err error) {
	n = &Node{Name: name, Persistence: persistence, dir: filepath.Join(dir, name), library: library}
	n.clock.file = filepath.Join(n.dir, "clock")
	if n.Addr, err = freeAddress(); err != nil {
		return nil, err
	}
	return n, errors.Join(os.MkdirAll(n.dir, 0o755), n.SetClock(0))
}

// StartNodes starts servers in directories of their own below dir. They end with stop, or with this
// process.
func StartNodes(ctx context.Context, dir string, count int, persistence Persistence) (nodes []*Node,
	stop func(), err error) {
	return startNodes(ctx, dir, count, persistence, func(*Node) error { return nil })
}

// startNodes is StartNodes, and prepares each server before it is started.
func startNodes(ctx context.Context, dir string, count int, persistence Persistence,
	prepare func(*Node) error) (nodes []*Node, stop func(), err error) {
	stop = func() {
		for _, n := range nodes {
			if n.process != nil {
				n.process.kill()
			}
		}
	}
	library, err := buildPreload(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	for i := range count {
		n, err := newNode("n"+strconv.Itoa(i+1), persistence, dir, library)
		if err == nil {
			nodes = append(nodes, n)
			err = prepare(n)
		}
		if err == nil {
			err = n.start()
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
	}
	return nodes, stop, nil
}

func (n *Node) label() string { return n.Name }

// requests reads whole ones, unless TLS hides what a request is.
func (n *Node) requests(from io.Reader) func(single func() bool) ([]byte, error) {
	if n.secure != nil {
		return whatever(from)
	}
	return requests(from)
}

// Freeze stops the process: connections stay open and nothing is answered.
func (n *Node) Freeze() { n.process.freeze() }

// Thaw undoes Freeze.
func (n *Node) Thaw() { n.process.thaw() }

func (n *Node) start() error {
	host, port, _ := net.SplitHostPort(n.Addr)
	args := []string{"--port", port, "--bind", host, "--dir", n.dir, "--save", "", "--daemonize",
		"no", "--protected-mode", "no",
		"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"}
	if n.Persistence != Memory {
		// It is never rewritten by itself: a power failure takes away the end of what there is.
		args = append(args, "--appendonly", "yes", "--appendfsync", string(n.Persistence),
			"--auto-aof-rewrite-percentage", "0")
	}
	args = append(args, n.extra...)
	if n.Mute {
		args = append(args, "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-subscribe",
			"-ssubscribe", "-psubscribe")
	}
	cmd := exec.Command("redis-server", args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+n.library, "ITEST_CLOCK="+n.clock.file)
	var err error
	if n.process, err = start(cmd, filepath.Join(n.dir, "log")); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		reply, err := n.Do("PING")
		if err == nil && reply == "PONG" {
			return nil
		}
		select {
		case <-n.process.exited:
			text, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			return fmt.Errorf("%s ended: %s", n.Name, text)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer: %w", n.Name, err)
		}
	}
}

// replace starts another server in place of the node's, without data, at another address. The
// former server goes on.
func (n *Node) replace() (former *Node, err error) {
	former = &Node{Name: n.Name, Addr: n.Addr, dir: n.dir, process: n.process}
	if n.Addr, err = freeAddress(); err != nil {
		return former, err
	}
	n.dir += "+"
	n.clock.file = filepath.Join(n.dir, "clock")
	if err := errors.Join(os.MkdirAll(n.dir, 0o755), n.SetClock(0)); err != nil {
		return former, err
	}
	return former, n.start()
}

// Do sends one command on a connection of its own.
func (n *Node) Do(args ...string) (any, error) {
	return (&redistest.Server{Addr: n.Addr}).Try(args...)
}

// Restart kills the server, unless it was killed already, and starts it on what it has kept.
func (n *Node) Restart() error {
	return errors.Join(n.Kill(), n.start())
}

// Written tells how much of the append-only file there is: its parts that grow, with their sizes.
func (n *Node) Written() map[string]int64 {
	sizes := make(map[string]int64)
	files, _ := filepath.Glob(filepath.Join(n.dir, "appendonlydir", "*.incr.aof"))
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// Synced tells how much of the append-only file is certain to be on the disk, as Written does.
func (n *Node) Synced() (map[string]int64, error) {
	sizes := n.Written()
	for name, written := range sizes {
		var size int64
		switch text, err := os.ReadFile(name + ".synced"); {
		case err == nil && len(text) == 8:
			size = int64(binary.NativeEndian.Uint64(text))
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s.synced: %d bytes, %w", name, len(text), err)
		}
		sizes[name] = min(size, written)
	}
	return sizes, nil
}

// PowerFailure kills the server, and cuts off what the disk may not have of its file. kill -9 alone
// does not do that, because the system still has it. A server that always syncs loses what it has
// not synced. One that syncs every second loses what it has written since a moment in the last
// second.
func (n *Node) PowerFailure(moment map[string]int64) error {
	if err := n.Kill(); err != nil {
		return err
	}
	left := moment
	if n.Persistence == Always {
		var err error
		if left, err = n.Synced(); err != nil {
			return err
		}
	}
	for name, size := range left {
		if err := os.Truncate(name, size); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills the server. It fails if the server had ended by itself before, and tells what it said
// last.
func (n *Node) Kill() error {
	if crashed := n.process.kill(); !crashed {
		return nil
	}
	text, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	return fmt.Errorf("%s ended by itself: %s", n.Name, text[max(0, len(text)-4000):])
}

// lockClients returns the connections of lock clients.
func (n *Node) lockClients() ([]string, error) {
	reply, err := n.Do("CLIENT", "LIST")
	if err != nil {
		return nil, err
	}
	var found []string
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		if strings.Contains(line, " name=holdfast ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}

// orphans returns keys that would block others, and keys that would stay for ever, except counters
// of tokens and what the server knows of its set.
func (n *Node) orphans() ([]string, error) {
	// A replica has what its primary has, and in a Cluster it does not show it.
	if left, err := n.behind(); err == nil && left == nil {
		return nil, nil
	}
	reply, err := n.Do("KEYS", "*")
	if err != nil {
		return nil, err
	}
	keys, _ := reply.([]any)
	var found []string
	for _, k := range keys {
		key, _ := k.(string)
		ttl, err := n.Do("PTTL", key)
		if err != nil {
			return nil, err
		}
		ms, _ := ttl.(int64)
		switch {
		case ms == -2: // gone by now
		case strings.HasPrefix(key, "lock:"), ms == -1 && !strings.HasPrefix(key, "holdfast:f:") &&
			key != "holdfast:s" && !strings.HasPrefix(key, "holdfast:m:"):
			found = append(found, key+" (TTL "+strconv.FormatInt(ms, 10)+" ms)")
		}
	}
	return found, nil
}
