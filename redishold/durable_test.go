package redishold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// R32: no setting of a server exempts it from the quarantine by itself.
func TestR32_SettingsExemptNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	b := open(t, server.URL())
	b.Guard(time.Hour)
	var q *driver.QuarantineError
	if r, err := b.Acquire(t.Context(), newClaim("k")); !errors.As(err, &q) {
		t.Errorf("Acquire from a fresh server that syncs always: %v, %v", r.State, err)
	}
}

// The operator's word is checked against what the server says. The server is refused if it says
// otherwise or does not say.
func TestR32_DurableIsChecked(t *testing.T) {
	t.Parallel()
	for want, options := range map[string][]redistest.Option{
		"appendonly no":        nil,
		"appendfsync everysec": {redistest.WithAOF("everysec")},
		"no-appendfsync-on-rewrite yes": {redistest.WithAOF("always"),
			redistest.WithArgs("--no-appendfsync-on-rewrite", "yes")},
		"CONFIG GET is needed": {redistest.WithAOF("always")},
	} {
		server := redistest.Start(t, options...)
		if strings.Contains(want, "CONFIG") {
			server.Do(t, "ACL", "SETUSER", "default", "-config")
		}
		b, err := redishold.Open(t.Context(), server.URL()+"?durable=always")
		if err == nil {
			b.Close()
		}
		if !driver.Permanent(err) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "durable=always") {
			t.Errorf("Open with a server that says %s: %v", want, err)
		}
	}
	for _, url := range []string{"redis://h?durable=yes", "redis://h?durable=",
		"redis+sentinel://h/p?durable=always", "redis+cluster://h?durable=always"} {
		if _, err := redishold.Parse(url); err == nil || !strings.Contains(err.Error(), "durable") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A setting that was changed since is seen by the next connection.
func TestR32_DurableIsCheckedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL()+"?durable=always")
	b.Guard(time.Hour)
	mustBe(t, "exempt", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
	server.Do(t, "CONFIG", "SET", "appendfsync", "everysec")
	proxy.Break()
	testserver.Eventually(t, "the server is refused", func() error {
		_, err := b.Acquire(t.Context(), newClaim("other"))
		return testserver.Not(driver.Permanent(err) &&
			strings.Contains(err.Error(), "appendfsync everysec"), "%v", err)
	})
}
