//go:build unix

package etcdhold

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// queued returns a Backend without a server, a claim that was found in its queue in revision 10,
// and how many notices about the claim there were.
func queued(presence time.Duration) (b *Backend, c *claim, own *party, told *int) {
	b = &Backend{claims: make(map[identity]*claim), watches: make(map[string]*watch),
		timeout: time.Second, layout: DefaultKeyspace}
	x := &lease{id: 7, claims: 1}
	b.leases = &leases{ended: new(sync.WaitGroup), current: make(map[class]*lease),
		grants: make(map[class]*flight), all: map[clientv3.LeaseID]*lease{x.id: x}}
	c, _ = b.claimOf(driver.Claim{Key: "k", Owner: "o", TTL: presence})
	own = &party{owner: "o", lease: x.id}
	b.waiting(c, own, 10, presence)
	told = new(int)
	b.subscribers = []*subscriber{{f: func(driver.Notice) { *told++ }}}
	return b, c, own, told
}

// A waiter that asks again is present from then on, even if it was let in before the answer came.
func TestPresenceAfterAFastNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const presence = 10 * time.Second
		b, c, own, told := queued(presence)
		time.Sleep(presence / 2)
		b.granted("k", []*party{own}, 20)
		b.waiting(c, own, 15, presence)
		if left := c.deadline - driver.LeaseClock(); c.phase != holds || *told != 1 ||
			left != presence {
			t.Errorf("phase %d, told %d times, %v left; want that it holds, once and %v", c.phase,
				*told, left, presence)
		}
		b.drop(c)
	})
}

// A grant that was over when the claim was found in the queue is not reported any more.
func TestNoticeOfAnEarlierGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, own, told := queued(time.Minute)
		b.granted("k", []*party{own}, 9)
		if c.phase != waits || *told != 0 {
			t.Errorf("phase %d, told %d times; want that it waits, and is told nothing", c.phase,
				*told)
		}
		b.drop(c)
	})
}
