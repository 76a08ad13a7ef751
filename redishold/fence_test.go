package redishold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// If somebody has set a fence to where no exact tokens are left, the error says which one it is,
// and how to repair it. The other slots go on.
func TestFenceWithoutTokensLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	fence := protocol.KeysOf("k").Fence
	for _, score := range []string{"9007199254740991", "9007199254740992", "1e18"} {
		server.Do(t, "ZADD", fence, score, "t")
		claim := newClaim("k")
		claim.Block = 2
		r, err := b.Acquire(t.Context(), claim)
		if !errors.Is(err, driver.ErrUnknown) || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), fence) || !strings.Contains(err.Error(), "DEL") {
			t.Errorf("Acquire with the fence at %s: %+v, %v", score, r, err)
		}
		mustBe(t, "give it back", driver.Held)(b.Release(t.Context(), claim))
		held := newClaim("k")
		server.Do(t, "SET", "k", held.Owner, "PX", "60000")
		held.Block = 2
		results, err := b.Renew(t.Context(), []driver.Claim{held})
		if err != nil || !driver.Permanent(results[0].Err) ||
			!strings.Contains(results[0].Err.Error(), fence) {
			t.Errorf("Renew with the fence at %s: %+v, %v", score, results, err)
		}
		mustBe(t, "give it back", driver.Held)(b.Release(t.Context(), held))
	}
	other := newClaim("other")
	mustBe(t, "another slot", driver.Held)(b.Acquire(t.Context(), other))
	server.Do(t, "DEL", fence)
	claim := newClaim("k")
	claim.Token = driver.Token(time.Now().UnixMicro())
	if r := mustBe(t, "repaired",
		driver.Held)(b.Acquire(t.Context(), claim)); r.Token != claim.Token {
		t.Errorf("token %v after the repair, want %v", r.Token, claim.Token)
	}
}
