package etcdhold

import "github.com/holdfast-go/holdfast/driver"

// EndTime ends the time of a claim that this Backend made, before its timer notices.
func (b *Backend) EndTime(c driver.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims[identity{c.Key, c.Owner}].deadline = driver.LeaseClock()
}
