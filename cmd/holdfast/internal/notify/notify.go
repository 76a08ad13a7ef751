// Package notify tells the service manager how a service is: the protocol of sd_notify(3), a
// datagram of lines to the socket that NOTIFY_SOCKET names. systemd speaks it, and so do podman and
// others that run services.
package notify

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Variables are the environment variables by which a service manager asks to be told.
var Variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// Manager is the service manager of this process. A nil Manager is told nothing. One goroutine uses
// it.
type Manager struct {
	conn  net.Conn
	every time.Duration
}

// Dial returns the manager that the environment names, or nil if there is none.
func Dial() (*Manager, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	// A leading @ is the abstract name space, to the package net as well.
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return nil, err
	}
	m := &Manager{conn: conn}
	pid := os.Getenv("WATCHDOG_PID")
	if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 &&
		(pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.every = time.Duration(us) * time.Microsecond / 2
	}
	return m, nil
}

// Every returns how often the manager wants to hear WATCHDOG=1, which is half of the time after
// which it takes the process for hung; 0 if it does not.
func (m *Manager) Every() time.Duration {
	if m == nil {
		return 0
	}
	return m.every
}

// Tell sends assignments, such as READY=1. It waits for a second at most.
func (m *Manager) Tell(assignments ...string) error {
	if m == nil {
		return nil
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	for i, a := range assignments {
		assignments[i] = strings.ReplaceAll(a, "\n", " ")
	}
	_, err := m.conn.Write([]byte(strings.Join(assignments, "\n")))
	return err
}

// Close closes the socket.
func (m *Manager) Close() error {
	if m == nil {
		return nil
	}
	return m.conn.Close()
}
