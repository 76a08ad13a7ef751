package redismodel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// A history is some clients of some servers, each of which acquires and releases one key a few
// times, while requests, replies and connections get lost, servers pause and restart on their data,
// and pipelines are split. It checks of all acquisitions that completed:
//
//   - No two are valid at the same time, unless keys were evicted.
//   - One that began after another had completed has the larger token, and no two have the same.
//   - When all is released, nothing is left but fences.
type history struct {
	*testing.T
	seed    uint64
	servers []*redismodel.Server
	clients []client
	evicts  bool
	// most clients are of an application
	libraries bool

	mu     sync.Mutex
	grants []*grant
	over   bool
}

// client is a client of redishold's own, or of an application.
type client interface {
	Cut(arrive bool)
	Hang(redismodel.Direction)
	Resume()
}

// chances are one party's own source of randomness. If it were shared, the scheduler would decide
// who draws what.
type chances struct {
	drawing sync.Mutex
	r       *rand.Rand
}

func (h *history) chances(party uint64) *chances {
	return &chances{r: rand.New(rand.NewPCG(h.seed, party))}
}

func (c *chances) upTo(n int) int {
	c.drawing.Lock()
	defer c.drawing.Unlock()
	return c.r.IntN(n)
}

// oneIn reports true once in n times.
func (c *chances) oneIn(n int) bool { return c.upTo(n) == 0 }

func (c *chances) some(d time.Duration) time.Duration { return time.Duration(c.upTo(int(d))) }

// grant is an acquisition that has completed.
type grant struct {
	owner            string
	token            driver.Token
	began, completed time.Time
	ends             time.Time // of its validity, or when it was given back
}

const (
	historyKey = "lock:a"
	historyTTL = 2 * time.Second
)

// link is what a client's requests go through.
func link(h *chances) redismodel.Link {
	usual := time.Duration(1+h.upTo(5)) * time.Millisecond
	delay := func() time.Duration {
		if h.oneIn(30) {
			return h.some(400 * time.Millisecond)
		}
		return h.some(usual)
	}
	return redismodel.Link{
		Request: delay, Reply: delay, Gap: delay,
		Cut: func(commands int) (int, bool) { return h.upTo(commands + 1), h.oneIn(50) },
	}
}

// strayLink is a link with which one request of ten arrives up to seconds after its client has
// given it up, and how long that takes.
func strayLink(h *chances, l redismodel.Link) (redismodel.Link, func() time.Duration) {
	timeout := time.Duration(20+h.upTo(500)) * time.Millisecond
	request := l.Request
	l.Request = func() time.Duration {
		if h.oneIn(10) {
			return timeout + h.some(time.Duration(1+h.upTo(8000))*time.Millisecond)
		}
		return request()
	}
	return l, func() time.Duration { return timeout }
}

// runHistory runs the history of a seed and returns how many acquisitions completed in it. If
// libraries is set, most are by clients of an application: see strayLink.
func runHistory(t *testing.T, seed uint64, servers int, evicts, libraries bool) (completed int) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{T: t, seed: seed, evicts: evicts, libraries: libraries}
		set := h.chances(0)
		for range servers {
			h.servers = append(h.servers, redismodel.New(redismodel.Options{
				Offset: set.some(20*time.Second) - 10*time.Second,
				Rate:   1 + float64(set.upTo(100)-50)/1e5,
			}))
		}
		var everybody sync.WaitGroup
		for i := range 2 + set.upTo(4) {
			b := h.open(i)
			defer b.Close()
			u := &user{history: h, chances: h.chances(uint64(1 + i)), b: b,
				name: fmt.Sprintf("client %d", i)}
			everybody.Go(u.run)
		}
		var trouble sync.WaitGroup
		trouble.Go(func() { h.trouble(h.chances(100)) })
		everybody.Wait()
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
		trouble.Wait()
		// what could not be released ends by itself: leases, and queues after 20 s
		time.Sleep(30 * time.Second)
		if libraries {
			time.Sleep(time.Minute) // what the servers know of late requests
		}
		for _, s := range h.servers {
			if keys := s.Keys(); len(keys) > 0 {
				h.fail("left on %s: %q", s.Name(), keys)
			}
		}
		completed = len(h.grants)
		for _, s := range h.servers {
			s.Stop()
		}
	})
	return completed
}

// open returns a Backend with clients of its own of all servers.
func (h *history) open(client int) driver.Backend { return h.openOver(client, link) }

// openOver is open with links of another kind.
func (h *history) openOver(client int, link func(*chances) redismodel.Link) driver.Backend {
	var backends []driver.Backend
	for i, s := range h.servers {
		chances := h.chances(uint64(1000 + 10*client + i))
		if h.libraries && client%4 > 0 {
			l := s.Library(strayLink(chances, link(chances)))
			h.clients = append(h.clients, l)
			backends = append(backends, l.Backend())
			continue
		}
		c := s.Client(link(chances))
		h.clients = append(h.clients, c)
		backends = append(backends, c.Backend())
	}
	if len(backends) == 1 {
		return backends[0]
	}
	q, err := quorum.New(backends, quorum.WithGuard(0))
	if err != nil {
		h.Fatal(err)
	}
	return q
}

// user is one client.
type user struct {
	*history
	*chances
	b    driver.Backend
	name string
}

// run acquires and releases a few times.
func (u *user) run() {
	for i := range 8 {
		time.Sleep(u.some(300 * time.Millisecond))
		claim := driver.Claim{Key: historyKey, Owner: fmt.Sprintf("%s's %d", u.name, i),
			TTL: historyTTL, Queue: u.oneIn(2)}
		claim.Ticket = uint64(time.Now().UnixMicro())
		if g := u.acquire(claim); g != nil {
			passesOn := u.oneIn(3) && u.renew(claim, g)
			if !passesOn {
				time.Sleep(u.some(time.Second))
			}
		}
		u.release(claim)
	}
}

// acquire asks until the claim is granted or patience is over.
func (u *user) acquire(claim driver.Claim) *grant {
	for end := time.Now().Add(u.some(4 * time.Second)); time.Now().Before(end); {
		began := time.Now()
		// a coarse clock, so that several want the same
		claim.Token = driver.Token(began.UnixMilli())
		ctx, cancel := context.WithTimeout(context.Background(),
			u.some(time.Second)+time.Millisecond)
		r, err := u.b.Acquire(ctx, claim)
		cancel()
		if err == nil && r.State == driver.Held {
			return u.granted(claim.Owner, r.Token, began)
		}
		time.Sleep(u.some(100 * time.Millisecond))
	}
	return nil
}

// valid returns until when a claim counts if its request began then. The clocks' rates differ.
func valid(began time.Time) time.Time {
	return began.Add(historyTTL - historyTTL/100 - 2*time.Millisecond)
}

// granted checks an acquisition that has just completed against all others.
func (h *history) granted(owner string, token driver.Token, began time.Time) *grant {
	g := &grant{owner: owner, token: token, began: began, completed: time.Now(), ends: valid(began)}
	if !g.completed.Before(g.ends) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.grants {
		switch {
		case other.token == g.token:
			h.fail("one token twice: %d for %s and for %s", g.token, other.owner, g.owner)
		case !other.completed.After(g.began) && other.token > g.token:
			h.fail("tokens fall: %d for %s, and later %d for %s", other.token, other.owner,
				g.token, g.owner)
		case !h.evicts && g.completed.Before(other.ends):
			h.fail("two holders: %s for another %v, and %s", other.owner,
				other.ends.Sub(g.completed), g.owner)
		}
	}
	h.grants = append(h.grants, g)
	return g
}

// renew renews the claim, and may ask whether somebody waits. It reports whether somebody waits:
// then the key is to be released.
func (u *user) renew(claim driver.Claim, g *grant) (waiting bool) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), g.ends)
	defer cancel()
	if u.oneIn(2) {
		claim.Block, claim.Token = 1, driver.Token(began.UnixMilli())
	}
	results, err := u.b.Renew(ctx, []driver.Claim{claim})
	switch {
	case err != nil || results[0].State == driver.Unknown:
	case results[0].State == driver.Held:
		u.setEnd(g, valid(began))
		return results[0].Waiting
	default:
		u.setEnd(g, began)
	}
	return false
}

func (h *history) setEnd(g *grant, ends time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.ends = ends
}

// release gives the claim back, and tries again when it has heard nothing.
func (u *user) release(claim driver.Claim) {
	u.mu.Lock()
	for _, g := range u.grants {
		if now := time.Now(); g.owner == claim.Owner && now.Before(g.ends) {
			g.ends = now
		}
	}
	u.mu.Unlock()
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := u.b.Release(ctx, claim)
		cancel()
		if err == nil {
			return
		}
	}
}

// trouble causes faults until the history is over, and then mends them.
func (h *history) trouble(random *chances) {
	for {
		h.mu.Lock()
		over := h.over
		h.mu.Unlock()
		if over {
			break
		}
		time.Sleep(random.some(200 * time.Millisecond))
		s, c := h.servers[random.upTo(len(h.servers))], h.clients[random.upTo(len(h.clients))]
		switch random.upTo(12) {
		case 0:
			c.Cut(random.oneIn(2))
		case 1:
			c.Hang([]redismodel.Direction{redismodel.Requests, redismodel.Replies,
				redismodel.Both}[random.upTo(3)])
			time.Sleep(random.some(time.Second))
			c.Resume()
		case 2:
			s.Pause()
			time.Sleep(random.some(time.Second))
			s.Resume()
		case 3:
			s.Restart()
		case 4:
			s.Stop()
			time.Sleep(random.some(time.Second))
			s.Restart()
		default:
			if h.evicts {
				s.Evict(historyKey)
			}
		}
	}
}

func (h *history) fail(format string, args ...any) {
	h.Errorf("SEED=%d with %d servers: %s", h.seed, len(h.servers), fmt.Sprintf(format, args...))
}

// histories runs that many of them, or the one of the environment's SEED, and expects that many
// acquisitions of each.
func histories(t *testing.T, n, expected int, run func(*testing.T, uint64) int) {
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		run(t, seed)
		return
	}
	n /= raceDivisor
	completed := 0
	for i := 0; i < n && !t.Failed(); i++ {
		completed += run(t, rand.Uint64())
	}
	t.Logf("%d histories, %d acquisitions", n, completed)
	if completed < expected*n {
		t.Errorf("%d acquisitions in %d histories", completed, n)
	}
}

// of returns a function that runs histories of that many servers.
func of(servers int, evicts bool) func(*testing.T, uint64) int {
	return func(t *testing.T, seed uint64) int {
		return runHistory(t, seed, servers, evicts, false)
	}
}

// ofStrays is of with clients of an application.
func ofStrays(servers int) func(*testing.T, uint64) int {
	return func(t *testing.T, seed uint64) int { return runHistory(t, seed, servers, false, true) }
}

func TestHistoriesOneServer(t *testing.T)    { histories(t, 100, 3, of(1, false)) }
func TestHistoriesThreeServers(t *testing.T) { histories(t, 50, 3, of(3, false)) }
func TestHistoriesEvictions(t *testing.T)    { histories(t, 50, 3, of(3, true)) }
func TestHistoriesStrays(t *testing.T)       { histories(t, 30, 2, ofStrays(3)) }
func TestHistoriesOneStray(t *testing.T)     { histories(t, 30, 2, ofStrays(1)) }
func TestRaces(t *testing.T)                 { histories(t, 1500, 0, runRace) }
