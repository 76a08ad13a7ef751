package lab

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/redishold/redistest"
)

// Persistence is what a server keeps through a restart.
type Persistence string

// The kinds of persistence.
const (
	Memory   Persistence = "memory"   // nothing
	EverySec Persistence = "everysec" // an append-only file, synced every second
	Always   Persistence = "always"   // an append-only file, synced before every answer
)

// patience bounds every wait for a server or a client. It is long since the machine may be busy.
const patience = 30 * time.Second

// Node is one redis-server.
type Node struct {
	Name        string      // n1 and so on
	Addr        string      // host:port
	Persistence Persistence // what it keeps
	dir         string
	clock       string // file with the step of its wall clock
	library     string // wallclock.c, built
	process     *process
}

//go:embed preload/wallclock.c
var wallClock []byte

// buildWallClock builds the library that steps wall clocks.
func buildWallClock(ctx context.Context, dir string) (string, error) {
	source, library := filepath.Join(dir, "wallclock.c"), filepath.Join(dir, "wallclock.so")
	if err := os.WriteFile(source, wallClock, 0o644); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", source, err, out)
	}
	return library, nil
}

// startNode starts a server in a directory of its own below dir.
func startNode(name, addr string, persistence Persistence, dir, library string) (*Node, error) {
	n := &Node{Name: name, Addr: addr, Persistence: persistence, dir: filepath.Join(dir, name), library: library}
	n.clock = filepath.Join(n.dir, "clock")
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	return n, n.start()
}

// StartNodes starts servers in directories of their own below dir. They end with stop, or with this process.
func StartNodes(ctx context.Context, dir string, count int, persistence Persistence) (nodes []*Node, stop func(), err error) {
	stop = func() {
		for _, n := range nodes {
			if n.process != nil {
				n.process.kill()
			}
		}
	}
	library, err := buildWallClock(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	for i := range count {
		addr, err := freeAddress()
		if err != nil {
			stop()
			return nil, nil, err
		}
		n, err := startNode("n"+strconv.Itoa(i+1), addr, persistence, dir, library)
		nodes = append(nodes, n)
		if err != nil {
			stop()
			return nil, nil, err
		}
	}
	return nodes, stop, nil
}

// Freeze stops the process in its tracks: connections stay open and nothing is answered.
func (n *Node) Freeze() { n.process.freeze() }

// Thaw undoes Freeze.
func (n *Node) Thaw() { n.process.thaw() }

func (n *Node) start() error {
	n.SetClock(0)
	host, port, _ := net.SplitHostPort(n.Addr)
	args := []string{"--port", port, "--bind", host, "--dir", n.dir, "--save", "", "--daemonize", "no", "--protected-mode", "no",
		"--maxmemory-policy", "noeviction"}
	if n.Persistence != Memory {
		args = append(args, "--appendonly", "yes", "--appendfsync", string(n.Persistence))
	}
	cmd := exec.Command("redis-server", args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+n.library, "ITEST_CLOCK="+n.clock)
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

// Do sends one command on a connection of its own.
func (n *Node) Do(args ...string) (any, error) { return (&redistest.Server{Addr: n.Addr}).Try(args...) }

// Restart kills the server, if that has not been done, and starts it on what it has kept.
func (n *Node) Restart() error {
	n.process.kill()
	return n.start()
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

// PowerFailure kills the server and, unless it syncs always, takes away what it has written since, as a power failure does with what was not
// synced: kill -9 alone does not, as the system still has it.
func (n *Node) PowerFailure(synced map[string]int64) error {
	n.process.kill()
	if n.Persistence != EverySec {
		return nil
	}
	for name, size := range synced {
		if err := os.Truncate(name, size); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills the server.
func (n *Node) Kill() { n.process.kill() }

// SetClock sets the server's wall clock as far off as step says.
func (n *Node) SetClock(step time.Duration) error {
	var raw [8]byte
	binary.NativeEndian.PutUint64(raw[:], uint64(step.Microseconds()))
	file, err := os.OpenFile(n.clock, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(raw[:], 0) // in place: the server has the file mapped
	return err
}

// lockClients are the connections of lock clients.
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

// orphans are keys that would block others, or that would stay for ever and are no counter of tokens.
func (n *Node) orphans() ([]string, error) {
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
		case strings.HasPrefix(key, "lock:"), ms == -1 && !strings.HasPrefix(key, "holdfast:f:"):
			found = append(found, key+" (TTL "+strconv.FormatInt(ms, 10)+" ms)")
		}
	}
	return found, nil
}
