//go:build unix

// Package zookeepertest starts real ZooKeeper servers for tests: see package testserver.
package zookeepertest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Tick is the unit in which the server counts sessions. The shortest session that it grants is two
// ticks.
const Tick = 100 * time.Millisecond

// Server is a ZooKeeper of one server that several tests share. Kill is a crash.
type Server struct {
	*testserver.Process
	Address string // host and port
}

// The libraries that the server needs, in the directories where Debian and others keep them.
var (
	libraries = []string{"zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-nop.jar",
		"metrics-core.jar", "snappy-java.jar", "netty-handler.jar", "netty-buffer.jar",
		"netty-codec.jar", "netty-common.jar", "netty-resolver.jar", "netty-transport.jar",
		"netty-transport-native-epoll.jar", "netty-transport-native-unix-common.jar"}
	directories = []string{"/usr/share/java", "/usr/local/share/java"}
)

// Start starts a ZooKeeper on new data, on a port that stays this process's. Remove ends it. It
// grants sessions of up to four hours.
func Start(t testing.TB) (Server, error) {
	s, err := prepare(t)
	if err != nil {
		return Server{}, err
	}
	if err := s.Run(); err != nil {
		return Server{}, errors.Join(err, s.Remove())
	}
	return s, nil
}

// prepare makes a server that does not run yet, with these lines in its configuration. If there are
// any, it is one of an ensemble.
func prepare(t testing.TB, lines ...string) (Server, error) {
	p, err := testserver.Prepare("zookeeper")
	if err != nil {
		return Server{}, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t)))
	if p.Path, p.Args, err = Command(p.Dir, address, lines...); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	p.Ready = func() error {
		_, err := Mode(address)
		return err
	}
	return Server{p, address}, nil
}

// Command returns the command that runs a server with its data in the directory. It writes the
// configuration there, with these lines in it. If there are any, the server is one of an ensemble.
func Command(dir, address string, lines ...string) (path string, args []string, err error) {
	java, err := testserver.Find("java", "default-jre-headless")
	if err != nil {
		return "", nil, err
	}
	classes, err := find()
	if err != nil {
		return "", nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	text := strings.Join(append([]string{
		"clientPortAddress=" + host, "clientPort=" + port, "dataDir=" + dir,
		fmt.Sprintf("tickTime=%d", Tick.Milliseconds()), "maxSessionTimeout=14400000",
		"maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
	}, lines...), "\n") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", nil, err
	}
	class := "ZooKeeperServerMain"
	if len(lines) > 0 {
		class = "quorum.QuorumPeerMain"
	}
	return java, []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		// A crash of the process loses nothing by that, and a slow disk cannot fail a test.
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024",
		"-cp", classes, "org.apache.zookeeper.server." + class, config}, nil
}

// find returns the class path.
func find() (string, error) {
	for _, dir := range directories {
		var found []string
		for _, name := range libraries {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err == nil {
				found = append(found, path)
			}
		}
		if len(found) == len(libraries) {
			return strings.Join(found, ":"), nil
		}
	}
	return "", fmt.Errorf(
		"ZooKeeper is not installed: install Debian's libzookeeper-java, for %q in %q: %w",
		libraries, directories, os.ErrNotExist)
}

// Version returns the version of the server, if the names of files beside it tell it; else "".
func Version() string {
	classes, err := find()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(classes, ":")
	start := strings.TrimSuffix(first, ".jar") + "-"
	named, _ := filepath.Glob(start + "[0-9]*.jar")
	if len(named) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(named[0], start), ".jar")
}

// Mode asks a server for its part, such as leader. A server that does not serve yet says so.
func Mode(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, testserver.Patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// The deadline is short, because a client that connected while the server was starting may
	// never get an answer.
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 1<<12))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(reply), "Mode: ")
	if !ok {
		return "", fmt.Errorf("it answers %q", reply)
	}
	name, _, _ := strings.Cut(rest, "\n")
	return name, nil
}
