package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// busyServer is a node that does one thing after the other, each of which takes it as long as Redis
// was seen to take. It also does what its caller does not wait for any more. Each key has a counter
// of tokens of its own, as keys of different slots have in Redis.
type busyServer struct {
	mu   sync.Mutex
	data *sync.Map     // of key: a memory of its own
	free time.Time     // when it has done all that it was asked for
	far  time.Duration // how much later its answers come

	each     time.Duration // how much longer it takes for each call
	calls    int           // how many it was asked for
	renewals int           // of these
}

const (
	keepsOne = 16 * time.Microsecond // to renew a claim of many
	drawsOne = 30 * time.Microsecond // to renew a claim and draw tokens
	oneCall  = 30 * time.Microsecond
)

// dataOf returns the memory of a key.
func dataOf(data *sync.Map, key string) *memhold.Backend {
	kept, found := data.Load(key)
	if !found {
		kept, _ = data.LoadOrStore(key, memhold.New())
	}
	return kept.(*memhold.Backend)
}

func (s *busyServer) work(ctx context.Context, d time.Duration) (*sync.Map, error) {
	s.mu.Lock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.calls++
	s.free = s.free.Add(s.each + d)
	done, data := s.free.Add(s.far), s.data
	s.mu.Unlock()
	select {
	case <-time.After(time.Until(done)):
		return data, nil
	case <-ctx.Done():
		return nil, &driver.Error{Maybe: true, Err: ctx.Err()}
	}
}

func (s *busyServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = new(sync.Map)
}

// isFar has its answers come that much later.
func (s *busyServer) isFar(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.far = d
}

// takes has each call take it that much longer.
func (s *busyServer) takes(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = d
}

func (s *busyServer) hang() { s.hangFor(time.Minute) }

func (s *busyServer) hangFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = time.Now().Add(d)
}

// all returns how many calls it was asked for.
func (s *busyServer) all() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// asked returns how often it was asked to renew.
func (s *busyServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals
}

func (s *busyServer) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = time.Time{}
}

func (s *busyServer) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	data, err := s.work(ctx, oneCall)
	if err != nil {
		return driver.Result{}, err
	}
	return dataOf(data, claim.Key).Acquire(ctx, claim)
}

func (s *busyServer) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	s.mu.Lock()
	s.renewals++
	s.mu.Unlock()
	var takes time.Duration
	for i := range claims {
		if claims[i].Block > 0 {
			takes += drawsOne
		} else {
			takes += keepsOne
		}
	}
	data, err := s.work(ctx, takes)
	if err != nil {
		return nil, err
	}
	results := make([]driver.Result, len(claims))
	for i, claim := range claims {
		one, err := dataOf(data, claim.Key).Renew(ctx, []driver.Claim{claim})
		if err != nil {
			return nil, err
		}
		results[i] = one[0]
	}
	return results, nil
}

func (s *busyServer) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	data, err := s.work(ctx, oneCall)
	if err != nil {
		return driver.Result{}, err
	}
	return dataOf(data, claim.Key).Release(ctx, claim)
}

func (s *busyServer) Shares() bool { return true }
func (s *busyServer) Close() error { return nil }

func busyServers(n int) (servers []*busyServer) {
	for range n {
		servers = append(servers, &busyServer{data: new(sync.Map)})
	}
	return servers
}

// quorumOf returns a client of the nodes, without a guard. f may be nil.
func quorumOf[B driver.Backend](t *testing.T, nodes []B, f func(quorum.NodeEvent)) *quorum.Quorum {
	t.Helper()
	var backends []driver.Backend
	for _, n := range nodes {
		backends = append(backends, n)
	}
	q, err := quorum.New(backends, quorum.WithGuard(0), quorum.WithObserver(f))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// A server that loses its data loses thousands of readers at once. To find out what tokens others
// have, and to put the readers back, keeps no server so busy that it counts as down, or that others
// wait for longer than they may.
func TestHealingManyReadersLeavesNodesTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 3000
		servers := busyServers(3)
		q := quorumOf(t, servers, func(e quorum.NodeEvent) {
			if e.Is != quorum.Up {
				t.Errorf("%s is %v (%v), though it does all that it is asked for", e.Node, e.Is,
					e.Err)
			}
		})
		other, later := quorumOf(t, servers, nil), quorumOf(t, servers, nil)
		var claims []driver.Claim
		var last []driver.Token // of another reader
		for i := range n {
			claim := driver.Claim{Key: fmt.Sprint("k", i), Owner: "reader", TTL: 10 * time.Second,
				Token: 1, Shared: true}
			claims = append(claims, claim)
			mustHold(t, q, claim)
			claim.Owner, claim.Token = "other", 1000
			last = append(last, mustHold(t, other, claim))
			mustRelease(t, other, claim)
		}
		for i, s := range servers {
			s.forget()
			renewMany(t, q, claims)
			for q.Status().Healed < uint64((i+1)*n) {
				claim := driver.Claim{Key: "another", Owner: "another", TTL: time.Minute, Token: 1}
				mustHold(t, q, claim)
				mustRelease(t, q, claim)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
		}
		for i, claim := range claims {
			mustRelease(t, q, claim)
			claim.Owner, claim.Shared = "writer", false
			if token := mustHold(t, later, claim); token <= last[i] {
				t.Fatalf("token %d after %d, want a larger one", token, last[i])
			}
		}
	})
}

// Nodes that do not tell what tokens others have are not asked again for each of many readers:
// before the next loss all of them have to be healed.
func TestManyReadersAreHealedThoughNodesDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 800
		servers := busyServers(3)
		q := quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		servers[0].forget()
		renewMany(t, q, claims)
		servers[2].hang()
		time.Sleep(4 * quorum.DefaultNodeTimeout)
		if healed := q.Status().Healed; healed != n {
			t.Errorf("%d of %d are healed while one node of three hangs", healed, n)
		}
	})
}

// Nor is a node that hangs told the tokens of many readers.
func TestNodesThatDoNotAnswerAreNotToldTheTokensOfManyReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 800
		servers := busyServers(3)
		q := quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		servers[0].forget()
		renewMany(t, q, claims)
		time.Sleep(time.Second)
		servers[0].isFar(20 * time.Millisecond) // so it answers the renewal when it hangs
		renewMany(t, q, claims)
		servers[0].hang()
		before := servers[0].asked()
		time.Sleep(2 * time.Second) // long enough to tell it each of them
		if unsure := q.Unsure(); unsure != n {
			t.Errorf("%d claims have nodes that are unsure of the last token; want %d", unsure, n)
		}
		// Each healer asks once what it knows.
		if asked := servers[0].asked() - before; asked == 0 || asked > n/quorum.DrawsAtOnce/2 {
			t.Errorf("a node that hangs was asked %d times for the tokens of %d readers", asked, n)
		}
	})
}

// A node that does not answer while many readers are healed does not keep the answers of the others
// from them: what one node alone knows of tokens counts for all readers.
func TestR38_ManyReadersHealWithWhatOneNodeKnows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 320 // four steps for each healer
		servers := busyServers(3)
		servers[1].isFar(time.Millisecond) // so its answers come last
		q, other := quorumOf(t, servers, nil), quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		servers[2].hang() // it does not hear of the other reader's tokens
		last := readAll(t, other, claims)
		servers[2].goOn()
		time.Sleep(2 * time.Second)
		servers[0].forget()
		renewMany(t, q, claims)
		servers[2].hang()
		time.Sleep(4 * quorum.DefaultNodeTimeout)
		servers[2].goOn()
		time.Sleep(2 * time.Second)
		servers[1].forget() // it knew them, too
		renewMany(t, q, claims)
		time.Sleep(time.Second)
		for i := 9; i < n; i += 10 {
			writer := claims[i]
			mustRelease(t, q, writer)
			writer.Owner, writer.Shared = "writer", false
			// a client that has heard of no token
			if token := mustHold(t, quorumOf(t, servers, nil), writer); token <= last[i] {
				t.Errorf("token %d after %d, want a larger one", token, last[i])
			}
		}
	})
}

// readAll has another reader of each claim's key come and go. It returns their tokens, which are
// larger than those of the claims, and differ.
func readAll(t *testing.T, other *quorum.Quorum, claims []driver.Claim) (last []driver.Token) {
	t.Helper()
	for i, claim := range claims {
		claim.Owner, claim.Token = "other", driver.Token(1000*(len(claims)-i))
		last = append(last, mustHold(t, other, claim))
		mustRelease(t, other, claim)
	}
	return last
}

// renewMany renews as the kernel does.
func renewMany(t *testing.T, q *quorum.Quorum, claims []driver.Claim) {
	var all sync.WaitGroup
	for batch := range slices.Chunk(claims, 1000) {
		all.Go(func() {
			results, err := q.Renew(t.Context(), batch)
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range results {
				if r.State != driver.Held {
					t.Errorf("Renew = %v (%v); want held", r.State, r.Err)
				}
			}
		})
	}
	all.Wait()
}

func mustHold(t *testing.T, q *quorum.Quorum, claim driver.Claim) driver.Token {
	t.Helper()
	r, err := q.Acquire(t.Context(), claim)
	if err != nil || r.State != driver.Held {
		t.Fatalf("Acquire = %v, %v; want held", r.State, err)
	}
	return r.Token
}

func mustRelease(t *testing.T, q *quorum.Quorum, claim driver.Claim) {
	t.Helper()
	if _, err := q.Release(t.Context(), claim); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// holdReaders has the quorum hold the claims of n readers, each of a key of its own.
func holdReaders(t *testing.T, q *quorum.Quorum, n int) []driver.Claim {
	t.Helper()
	var claims []driver.Claim
	for i := range n {
		claims = append(claims, driver.Claim{Key: fmt.Sprint("k", i), Owner: "reader",
			TTL: 10 * time.Second, Token: 1, Shared: true})
		mustHold(t, q, claims[i])
	}
	return claims
}

// Close ends the healing of many claims. It does not wait until all have been tried in vain.
func TestCloseEndsHealing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const healers, steps = 8, 6
		servers := busyServers(3)
		q := quorumOf(t, servers, nil)
		var claims []driver.Claim
		for i := range healers * steps * quorum.DrawsAtOnce {
			claims = append(claims, driver.Claim{Key: fmt.Sprint("k", i), Owner: "owner",
				TTL: 10 * time.Second, Token: 1})
			mustHold(t, q, claims[i])
		}
		rest()
		servers[0].forget()
		servers[1].isFar(20 * time.Millisecond) // so that one server hangs before the others answer
		servers[2].isFar(20 * time.Millisecond)
		time.AfterFunc(15*time.Millisecond, servers[0].hang)
		renewMany(t, q, claims)
		time.Sleep(4 * quorum.DefaultNodeTimeout)
		before := servers[0].all()
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		synctest.Wait()
		// Each healer finishes what it has begun.
		if n := servers[0].all() - before; n > 2*healers*quorum.DrawsAtOnce {
			t.Errorf("a server was asked %d times while the Quorum closed; want a few", n)
		}
	})
}
