//go:build unix

package zkhold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/zkhold"
)

// TestTLS has a server that asks clients for certificates. It serves a client that has one. A
// client without one, or one that trusts another authority, gets its error at once.
func TestTLS(t *testing.T) {
	c := redistest.NewCertificates(t)
	s, address, err := zookeepertest.StartTLS(t, c.CA, c.ServerCert, c.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	own := "&tls-cert=" + c.ClientCert + "&tls-key=" + c.ClientKey
	b := open(t, "zookeepers://"+address+"?tls-ca="+c.CA+own)
	expectCodes(t, b, "over TLS", "single-member")
	a := claim("k")
	acquire(t, b, a, driver.Held)
	acquire(t, b, claim("k"), driver.Busy)
	release(t, b, a, driver.Held)

	other := redistest.NewCertificates(t)
	for name, query := range map[string]string{
		"of another authority": "?tls-ca=" + other.CA + own,
		"without one":          "?tls-ca=" + c.CA,
	} {
		ctx, cancel := patience(t)
		_, err := zkhold.Open(ctx, "zookeepers://"+address+query,
			zkhold.WithTimeout(time.Hour))
		if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
			t.Errorf("%s: %v; want a permanent error", name, err)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: it took until the end of the context", name)
		}
		cancel()
	}
}
