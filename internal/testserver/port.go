package testserver

import (
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// Ports are tried one after the other, from a random one on, so two test processes at the same time
// rarely try the same port.
const firstPort, lastPort = 10_000, 32_000

var ports atomic.Int64 // tried so far, and where that began

func init() { ports.Store(rand.Int64N(lastPort - firstPort)) }

// reserved has the sockets that keep the ports for this process until it ends. They are never
// closed, because a server may be started again on its port, and a port where nobody may listen
// must stay so.
var reserved struct {
	sync.Mutex
	all []io.Closer
}

// FreePort returns a port of 127.0.0.1 that was free a moment ago, and that neither this nor any
// other test process that runs has got from it. It is below the ports that systems give to outgoing
// connections, one of which could take it before the server does. The port plus each of the
// distances is such a port, too: some servers need several.
func FreePort(t testing.TB, distances ...int) int {
	t.Helper()
	for range lastPort - firstPort { // one process may have a thousand in a row
		port := firstPort + int(ports.Add(1)%(lastPort-firstPort))
		if reserve(port, distances) {
			return port
		}
	}
	t.Fatalf("no free port from %d to %d", firstPort, lastPort)
	return 0
}

// reserve keeps the port and those in the distances for this process. It returns false if one of
// them is not free, or no port.
func reserve(port int, distances []int) bool {
	var kept []io.Closer
	for _, distance := range append([]int{0}, distances...) {
		c := keep(port + distance)
		if c == nil {
			for _, c := range kept {
				c.Close()
			}
			return false
		}
		kept = append(kept, c)
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.all = append(reserved.all, kept...)
	return true
}

// keep takes the port of UDP, which no server uses. So other test processes see that the port is
// taken, even before the server listens and while it is stopped. keep returns nil if the port is
// not free.
func keep(port int) io.Closer {
	if port > lastPort {
		return nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		c.Close()
		return nil
	}
	l.Close()
	return c
}
