package etcdhold

import "github.com/holdfast-go/holdfast/driver"

// EndTime ends the time of a claim that this Backend made, before its timer notices.
func (b *Backend) EndTime(c driver.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims[identity{c.Key, c.Owner}].deadline = driver.LeaseClock()
}

// Endpoints are the servers that a URL names, as the client of etcd gets them.
func Endpoints(url string) ([]string, error) {
	a, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	return a.endpoints, nil
}
