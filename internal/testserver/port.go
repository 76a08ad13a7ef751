package testserver

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports are tried one after the other, from a random one on: so two test processes at the same time
// rarely try the same.
const firstPort, lastPort = 10_000, 32_000

var ports atomic.Int64 // tried so far, and where that began

func init() { ports.Store(rand.Int64N(lastPort - firstPort)) }

// FreePort returns a port of 127.0.0.1 that was free a moment ago, and that it has not returned
// before. It is below the ports that systems give to outgoing connections, one of which could take
// it before the server does. The port plus each of the distances is such a port, too: some servers
// need several.
func FreePort(t testing.TB, distances ...int) int {
	t.Helper()
	for range 1000 {
		port := firstPort + int(ports.Add(1)%(lastPort-firstPort))
		taken := func(distance int) bool { return port+distance > lastPort || !free(port+distance) }
		if free(port) && !slices.ContainsFunc(distances, taken) {
			return port
		}
	}
	t.Fatalf("no free port from %d to %d", firstPort, lastPort)
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		l.Close()
	}
	return err == nil
}
