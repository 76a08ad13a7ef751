//go:build unix

package redistest_test

import (
	"net"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// A client is cut off from a server even if it connects at this very moment.
func TestProxyThatRefusesLeavesNoConnection(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	for range 100 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				conn, err := net.Dial("tcp", p.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { conn.Close() })
			})
		}
		testserver.Eventually(t, "a client is connected", func() error {
			return testserver.Not(p.Conns() > 0, "none")
		})
		p.Refuse(true)
		p.Break()
		all.Wait()
		testserver.Eventually(t, "nobody is connected", func() error {
			n := p.Conns()
			return testserver.Not(n == 0, "%d are", n)
		})
		p.Refuse(false)
	}
}
