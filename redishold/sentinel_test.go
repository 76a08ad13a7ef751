package redishold_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t, redistest.WithPassword("secret"))
	b := open(t, s.URL()+"?wait=1")
	claim := newClaim("k")
	// With the replica's confirmation, which takes as long as it takes on a busy machine.
	first := granted(t, b, claim)
	s.Primary.Kill()
	s.TakeOver(t)
	// Without it: no server can give it any more.
	b = open(t, s.URL())
	stillHeld(t, b, claim)
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	if again := granted(t, open(t, s.URL()), newClaim("k")); again.Token <= first.Token {
		t.Errorf("token %d after the failover, %d before", again.Token, first.Token)
	}
}

func TestSentinelPrimaryFrozen(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	b := open(t, s.URL())
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	// The connection stays open, so nothing but silence says that another server has taken over.
	s.Primary.Freeze()
	defer s.Primary.Thaw()
	s.TakeOver(t)
	granted(t, b, claim)
	if got := s.Replica.Info(t, "role"); got != "master" {
		t.Errorf("granted by a server whose role is %s", got)
	}
}

// The documented limit: replication is asynchronous, so a failover can grant a lock twice.
func TestR4_FailoverLosesALock(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	b := open(t, s.URL())
	// The replica is cut off before it hears of the lock.
	s.Primary.Do(t, "ACL", "SETUSER", "default", "-psync", "-sync")
	s.Primary.Do(t, "CLIENT", "KILL", "TYPE", "replica")
	first, second := newClaim("k"), newClaim("k")
	second.Queue = false
	first.Token = driver.Token(time.Now().UnixMicro())
	r1 := mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), first))
	s.Primary.Kill()
	s.TakeOver(t)
	second.Token = driver.Token(time.Now().UnixMicro())
	r2 := granted(t, b, second)
	t.Logf("two hold the lock: token %d and token %d", r1.Token, r2.Token)
	// The fence was forgotten as well. Only the clock in the tokens tells the two holders apart.
	if r2.Token <= r1.Token {
		t.Errorf("token %d after the failover, %d before", r2.Token, r1.Token)
	}
	results, err := b.Renew(t.Context(), []driver.Claim{first})
	if err != nil || results[0].State != driver.Lost {
		t.Errorf("the first holder's next renewal: %+v, %v; want lost", results, err)
	}
}

func TestSentinelsLearnt(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	b := open(t, "redis+sentinel://"+s.Sentinels[0].Addr+"/"+redistest.PrimaryName)
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	// The only Sentinel of the URL goes, and then the connection.
	s.Sentinels[0].Kill()
	s.Primary.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	s.Primary.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	granted(t, b, claim)
}
