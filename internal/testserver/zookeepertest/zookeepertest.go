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

// Tick is what the server counts sessions in. The shortest one that it grants is two of it.
const Tick = 100 * time.Millisecond

// Server is a ZooKeeper of one server that several tests share. Kill is a crash.
type Server struct {
	*testserver.Process
	Address string // host and port
}

// The libraries that the server needs, in the directories where Debian and others keep them.
var (
	libraries = []string{"zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-nop.jar",
		"metrics-core.jar", "snappy-java.jar"}
	directories = []string{"/usr/share/java", "/usr/local/share/java"}
)

// Start starts a ZooKeeper on new data, on a port that stays this process's. Remove ends it. It
// grants sessions of up to four hours.
func Start(t testing.TB) (Server, error) {
	s, err := prepare(t, "ZooKeeperServerMain")
	if err != nil {
		return Server{}, err
	}
	if err := s.Run(); err != nil {
		return Server{}, errors.Join(err, s.Remove())
	}
	return s, nil
}

// prepare makes a server that does not run yet, whose program is that class, with these lines in
// its configuration.
func prepare(t testing.TB, class string, lines ...string) (Server, error) {
	java, err := testserver.Find("java", "default-jre-headless")
	if err != nil {
		return Server{}, err
	}
	classes, err := find()
	if err != nil {
		return Server{}, err
	}
	p, err := testserver.Prepare("zookeeper")
	if err != nil {
		return Server{}, err
	}
	port := strconv.Itoa(testserver.FreePort(t))
	s := Server{p, net.JoinHostPort("127.0.0.1", port)}
	config := filepath.Join(p.Dir, "zoo.cfg")
	text := strings.Join(append([]string{
		"clientPortAddress=127.0.0.1", "clientPort=" + port, "dataDir=" + p.Dir,
		fmt.Sprintf("tickTime=%d", Tick.Milliseconds()), "maxSessionTimeout=14400000",
		"maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
	}, lines...), "\n") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	p.Path = java
	p.Args = []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		// A crash of the process loses nothing by that, and a slow disk can not fail a test.
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024",
		"-cp", classes, "org.apache.zookeeper.server." + class, config}
	p.Ready = func() error {
		_, err := mode(s.Address)
		return err
	}
	return s, nil
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

// mode asks for the part that the server has, such as leader. One that does not serve yet says so.
func mode(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, testserver.Patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// Not for long: who has connected while the server was starting may never be answered.
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
