//go:build unix

package redistest

import (
	"fmt"
	"net"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TakeOver makes the replica of the shard take the place of its primary, which may be frozen or
// gone, and waits until all other servers send clients there.
func (c *Cluster) TakeOver(t testing.TB, shard int) {
	t.Helper()
	replica, primary := c.Replicas[shard][0], c.Primaries[shard]
	replica.Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	slot := int64(shard * 16384 / len(c.Primaries))
	for i := range c.Primaries {
		for _, s := range append([]*Server{c.Primaries[i]}, c.Replicas[i]...) {
			if s == primary {
				continue
			}
			testserver.Eventually(t, "all know who has taken over", func() error {
				address, err := s.serving(slot)
				if err != nil {
					return err
				}
				return testserver.Not(address == replica.Addr, "%s says %s", s.Addr, address)
			})
		}
	}
}

// TakeOver makes the replica take the place of the primary, which may be frozen or gone, and waits
// until all Sentinels that run send clients there.
func (s *Sentinels) TakeOver(t testing.TB) {
	t.Helper()
	testserver.Eventually(t, "the replica has taken over", func() error {
		role, err := s.Replica.Try("ROLE") // it ends its connections when it takes over
		if err != nil {
			return err
		}
		if role.([]any)[0] == "master" {
			return nil
		}
		// A Sentinel that is not ready for it, or does it already, says so.
		reply, err := s.Sentinels[0].Try("SENTINEL", "FAILOVER", PrimaryName)
		return fmt.Errorf("a Sentinel says %v, %w", reply, err)
	})
	for _, sentinel := range s.Sentinels {
		testserver.Eventually(t, "all Sentinels know who has taken over", func() error {
			reply, err := sentinel.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PrimaryName)
			if err != nil {
				return err
			}
			fields := reply.([]any)
			address := net.JoinHostPort(fmt.Sprint(fields[0]), fmt.Sprint(fields[1]))
			return testserver.Not(address == s.Replica.Addr, "%s says %s", sentinel.Addr, address)
		})
	}
}
