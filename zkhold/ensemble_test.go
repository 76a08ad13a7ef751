//go:build unix

package zkhold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/zkhold"
)

// A leader whose followers do not answer may have been replaced. For a while it does not know that,
// and answers requests that need no majority as if all were well.
func TestLeaderWithoutMajority(t *testing.T) {
	leader, followers, err := zookeepertest.StartEnsemble(t)
	if err != nil {
		t.Fatal(err)
	}
	var opened atomic.Bool
	all := open(t, fmt.Sprintf("zookeeper://%s,%s,%s", leader.Address, followers[0].Address,
		followers[1].Address), zkhold.WithTimeout(2*time.Second), zkhold.WithDialer(
		func(network, at string, limit time.Duration) (net.Conn, error) {
			if !opened.Load() { // the session may begin at any server
				at = leader.Address
			}
			return net.DialTimeout(network, at, limit)
		}))
	opened.Store(true)
	expectCodes(t, all, "an ensemble")
	b := open(t, "zookeeper://"+leader.Address)
	c := claim("k")
	c.TTL = long / 4 * 3 // the longest: what was answered before the renewal proves too little
	acquire(t, b, c, driver.Held)
	renew(t, b, driver.Held, c)
	for i, f := range followers {
		f.Freeze()
		t.Cleanup(f.Thaw)
		if i == 0 {
			expectCodes(t, all, "one of three hangs", "unreachable "+f.Address)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results, err := b.Renew(ctx, []driver.Claim{c})
	if err == nil {
		err = results[0].Err
	}
	if !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Renew without a majority: %v, %v; want ErrUnknown", results, err)
	}
	for _, f := range followers {
		f.Thaw()
	}
	testserver.Eventually(t, "the claim is renewed", func() error {
		ctx, cancel := patience(t)
		defer cancel()
		results, err := b.Renew(ctx, []driver.Claim{c})
		return testserver.Not(err == nil && results[0].State == driver.Held, "%v, %v", results, err)
	})
}
