package zkhold

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// testSlots is how many slots most tests use: they read all of them often.
const testSlots = 128

// FewerSlots has a Backend keep the locks in fewer slots. All clients of a root need it, or none.
func FewerSlots() Option {
	return option(func(b *Backend) error {
		b.slots = testSlots
		return nil
	})
}

// HolderNodes returns the paths of the nodes that say that the holders of a key live.
func HolderNodes(t testing.TB, url string, c *zk.Conn, key string) (nodes []string) {
	t.Helper()
	path := SlotPath(t, url, key)
	data, _, err := c.Get(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Locks[escape(key)]; l != nil {
		for _, h := range l.Holders {
			nodes = append(nodes, path+"/"+h.Node)
		}
	}
	return nodes
}

// SlotPath returns the path of the slot of a key.
func SlotPath(t testing.TB, url, key string) string {
	t.Helper()
	a, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{root: a.root, slots: testSlots}
	return b.slotPath(b.slotOf(key))
}

// EndTime ends the time of a claim that this Backend made.
func (b *Backend) EndTime(c driver.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.claims[identity{c.Key, c.Owner}]
	mine.deadline = driver.LeaseClock()
	b.rearm(mine, mine.deadline)
}

// Left is for how long this Backend has the claim last.
func (b *Backend) Left(c driver.Claim) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claims[identity{c.Key, c.Owner}].deadline - driver.LeaseClock()
}

// Knows reports whether this Backend has anything to do with the claim.
func (b *Backend) Knows(c driver.Claim) bool { return b.find(c) != nil }

// Root returns the root that a URL names.
func Root(t testing.TB, url string) (string, bool) {
	t.Helper()
	a, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return a.root, a.root != ""
}
