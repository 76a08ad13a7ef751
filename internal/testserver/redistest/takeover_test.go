//go:build unix

package redistest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// A failover may lose what the primary has confirmed. So there is none unless a test asks for it,
// however long a busy machine keeps a primary from answering.
func TestReplicaOfAClusterDoesNotTakeOverByItself(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, redistest.WithArgs("--cluster-node-timeout", "1000"))
	primary, replica := c.Primaries[0], c.Replicas[0][0]
	id := primary.String(t, "CLUSTER", "MYID")
	failed := func() bool {
		for line := range strings.Lines(replica.String(t, "CLUSTER", "NODES")) {
			if fields := strings.Fields(line); fields[0] == id {
				return slices.Contains(strings.Split(fields[2], ","), "fail")
			}
		}
		return false
	}
	primary.Freeze()
	defer primary.Thaw()
	testserver.Eventually(t, "the others take the primary for failed", func() error {
		return testserver.Not(failed(), "not yet")
	})
	primary.Thaw()
	// It stays so for twice the timeout: long enough for a replica that wants to take over.
	testserver.Eventually(t, "the others see it again", func() error {
		return testserver.Not(!failed(), "not yet")
	})
	if role := replica.Info(t, "role"); role != "slave" {
		t.Errorf("the replica of a primary that was frozen is %s", role)
	}
}

func TestReplicaOfAClusterTakesOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	c.Primaries[1].Kill()
	c.TakeOver(t, 1)
	if role := c.Replicas[1][0].Info(t, "role"); role != "master" {
		t.Errorf("the replica that has taken over is %s", role)
	}
}

func TestReplicaBehindSentinelsTakesOver(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*redistest.Server){"killed": (*redistest.Server).Kill,
		"frozen": (*redistest.Server).Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t)
			stop(s.Primary)
			defer s.Primary.Thaw()
			s.TakeOver(t)
		})
	}
}
