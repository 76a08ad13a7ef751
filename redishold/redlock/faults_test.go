package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// scene is five servers and two clients that want one key. Faults of the network concern a only.
type scene struct {
	*cluster
	t      *testing.T
	a, b   *client
	first  driver.Claim // a's
	second driver.Claim // b's
}

// A fault hits one server, or a's way to it.
var serverFaults = []struct {
	name   string
	strike func(s *scene, i int)
	mend   func(s *scene, i int)
}{
	{"stopped", func(s *scene, i int) {
		s.servers[i].Freeze()
	}, func(s *scene, i int) { s.servers[i].Thaw() }},
	{"killed", func(s *scene, i int) {
		s.servers[i].Kill()
	}, func(s *scene, i int) { s.servers[i].Run(s.t) }},
	{"restarted empty", func(s *scene, i int) {
		s.servers[i].Kill()
		s.servers[i].Run(s.t)
	}, func(*scene, int) {}},
	{"cut off", func(s *scene, i int) {
		s.a.cut(true, i)
	}, func(s *scene, i int) { s.a.cut(false, i) }},
	{"without replies", func(s *scene, i int) {
		s.a.proxies[i].SetReplies(redistest.Hold)
	}, func(s *scene, i int) { s.a.proxies[i].SetReplies(redistest.Pass) }},
}

// A phase is one request by a.
var phases = []struct {
	name    string
	before  func(s *scene)       // what comes before it
	request func(s *scene) error // nil if it ended as it has to
	arrived func(s *scene, server *redistest.Server) bool
	after   func(s *scene) // what must be possible, and what must not, while the fault lasts
	last    func(s *scene) // how it ends when the fault is over
}{
	{
		name:    "acquire",
		before:  func(s *scene) {},
		request: func(s *scene) error { return want(driver.Held)(s.a.ask(s.first)) },
		arrived: func(s *scene, server *redistest.Server) bool {
			return server.String(s.t, "GET", s.first.Key) == s.first.Owner
		},
		after: func(s *scene) { s.b.busy(s.second) },
		last:  func(s *scene) { s.a.release(s.first, driver.Held) },
	},
	{
		name:   "renew",
		before: func(s *scene) { s.a.hold(s.first); s.heldByFirst() },
		request: func(s *scene) error {
			claim := s.first
			claim.TTL += time.Minute
			ctx, cancel := limit()
			defer cancel()
			results, err := s.a.Renew(ctx, []driver.Claim{claim})
			if err != nil {
				return err
			}
			return want(driver.Held)(results[0], results[0].Err)
		},
		arrived: func(s *scene, server *redistest.Server) bool {
			return server.Int(s.t, "PTTL", s.first.Key) > longTTL.Milliseconds()
		},
		after: func(s *scene) { s.b.busy(s.second) },
		last:  func(s *scene) { s.a.release(s.first, driver.Held) },
	},
	{
		name:    "release",
		before:  func(s *scene) { s.a.hold(s.first); s.heldByFirst() },
		request: func(s *scene) error { return s.released() },
		arrived: func(s *scene, server *redistest.Server) bool {
			return server.Int(s.t, "EXISTS", s.first.Key) == 0
		},
		after: func(s *scene) { s.b.granted(s.second) },
		last:  func(s *scene) { s.b.release(s.second, driver.Held) },
	},
	{
		name: "handoff",
		before: func(s *scene) {
			s.a.hold(s.first)
			s.heldByFirst()
			s.second.Queue = true
			s.b.busy(s.second)
			for _, server := range s.servers {
				testserver.Eventually(s.t, "b waits", func() error {
					n, err := server.Try("EXISTS", protocol.KeysOf(s.first.Key).Queue)
					return errors.Join(err, testserver.Not(n == int64(1), "no queue"))
				})
			}
		},
		request: func(s *scene) error { return s.released() },
		arrived: func(s *scene, server *redistest.Server) bool {
			return server.String(s.t, "GET", s.first.Key) == s.second.Owner
		},
		after: func(s *scene) {
			s.b.granted(s.second)
			s.first.Owner = driver.NewOwner(driver.OwnerSuffix("again"))
			s.a.busy(s.first)
		},
		last: func(s *scene) { s.b.release(s.second, driver.Held) },
	},
}

func want(state driver.State) func(driver.Result, error) error {
	return func(r driver.Result, err error) error {
		return errors.Join(err, testserver.Not(r.State == state, "%v held by %q, want %v", r.State,
			r.Holder, state))
	}
}

func (s *scene) released() error {
	ctx, cancel := limit()
	defer cancel()
	return want(driver.Held)(s.a.Release(ctx, s.first))
}

// heldByFirst waits until a's claim is on all servers.
func (s *scene) heldByFirst() {
	s.t.Helper()
	testserver.Eventually(s.t, "the lock is on all servers", func() error {
		n := s.heldOn(s.t, s.first)
		return testserver.Not(n == len(s.servers), "it is on %d", n)
	})
}

// minority is the two servers that a fault hits.
var minority = []int{1, 3}

// R3: whatever happens to a minority, in any phase, before a request or between its effect and its
// reply, the request ends as if nothing had happened. Nobody else gets what is held, and when the
// servers answer again, nothing is left on any.
func TestR3_MinorityFailsInEveryPhase(t *testing.T) {
	for _, fault := range serverFaults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 5)
			for k, phase := range phases {
				for _, before := range []bool{true, false} {
					name := phase.name + ", after its effect"
					if before {
						name = phase.name + ", before"
					}
					t.Run(name, func(t *testing.T) {
						key := fmt.Sprintf("lock-%d-%v", k, before)
						s := &scene{
							cluster: c, t: t,
							a: c.behindProxies(t, calm), b: c.client(t, calm),
							first: newClaim(key, longTTL), second: newClaim(key, longTTL),
						}
						s.a.healthy()
						s.b.healthy()
						c.nothingLeft(t)
						phase.before(s)
						mend := func() {}
						strike := func() {
							for _, i := range minority {
								fault.strike(s, i)
							}
							mend = sync.OnceFunc(func() {
								for _, i := range minority {
									fault.mend(s, i)
								}
							})
						}
						defer func() { mend() }() // if it fails: the next one needs the servers
						if before {
							strike()
							if err := phase.request(s); err != nil {
								t.Fatal(err)
							}
						} else {
							s.beforeReply(phase.request, phase.arrived, strike)
						}
						phase.after(s)
						mend()
						s.a.healthy()
						s.b.healthy()
						phase.last(s)
						c.nothingLeft(t)
					})
				}
			}
		})
	}
}

// beforeReply has a make the request, and strike called when it has had its effect on every server
// and before a hears of it.
func (s *scene) beforeReply(request func(*scene) error,
	arrived func(*scene, *redistest.Server) bool, strike func()) {
	s.t.Helper()
	// A reply that is still on its way would be kept back as well, and the request wait for it.
	s.a.healthy()
	for _, p := range s.a.proxies {
		p.SetReplies(redistest.Hold)
	}
	done := make(chan error, 1)
	go func() { done <- request(s) }()
	for i, server := range s.servers {
		testserver.Eventually(s.t, fmt.Sprintf("the request has had its effect on server %d", i),
			func() error {
				return testserver.Not(arrived(s, server), "not yet")
			})
	}
	strike()
	for i, p := range s.a.proxies {
		if i != minority[0] && i != minority[1] {
			p.SetReplies(redistest.Pass)
		}
	}
	err := <-done
	for _, i := range minority {
		// Replies that were kept back are useless by now, whatever the fault was.
		s.a.proxies[i].Break()
		s.a.proxies[i].SetReplies(redistest.Pass)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
