package simulate

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// redis is a stack of one Redis server, or of a quorum of several. These are models that run the
// real scripts.
type redis struct {
	servers []*redismodel.Server
	watch   []*protocol.Backend // connections without weather
}

func newRedis(nodes int) *redis {
	s := new(redis)
	for range nodes {
		server := redismodel.New(redismodel.Options{})
		s.servers = append(s.servers, server)
		s.watch = append(s.watch, server.Client(redismodel.Link{}).Backend())
	}
	return s
}

func (s *redis) size() int { return len(s.servers) }

func (s *redis) connect(p *process) (driver.Backend, []path) {
	var paths []path
	var backends []driver.Backend
	r := rand.New(rand.NewPCG(p.h.seed, uint64(400+p.id)))
	overLibrary := p.h.has(libraries) && r.IntN(4) > 0
	for i, server := range s.servers {
		l := &redisLink{h: p.h, proc: p, ended: make(map[string]time.Duration),
			r: rand.New(rand.NewPCG(p.h.seed, uint64(100+p.id+1000*i)))}
		link := redismodel.Link{Request: l.request, Reply: l.travel, Gap: l.gap, Cut: l.cut,
			Arrived: l.arrived}
		paths = append(paths, l)
		if overLibrary {
			l.timeout = pick(r, 20*time.Millisecond, 100*time.Millisecond, time.Second,
				3*time.Second)
			l.strays = pick(r, 5, 10, 25, 50)
			library := server.Library(link, l.patience)
			l.client = library
			backends = append(backends, library.Backend())
			continue
		}
		client := server.Client(link)
		l.client = client
		backends = append(backends, client.Backend())
	}
	return p.h.quorum(backends), paths
}

func (s *redis) inspect(key string) (entries []driver.Entry) {
	for _, watch := range s.watch {
		e, err := watch.Inspect(context.Background(), key)
		if err != nil {
			panic(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func (s *redis) lose(key string) {
	for _, server := range s.servers {
		server.Evict(key)
	}
}

// suspend makes the servers' clocks, which follow package time, count what the lease clock counts.
func (s *redis) suspend(d time.Duration) {
	for _, server := range s.servers {
		server.StepClock(d)
	}
}

func (s *redis) close() {
	for _, watch := range s.watch {
		watch.Close()
	}
	for _, server := range s.servers {
		server.Stop()
	}
	// What an application's client has been asked for is still under way.
	time.Sleep(2 * protocol.LibraryPatience)
}

// redisClient is a client of redishold's own, or of an application.
type redisClient interface {
	Cut(arrive bool)
	Hang(redismodel.Direction)
	Resume()
}

// redisLink is the way of one process to a server.
type redisLink struct {
	h       *history
	proc    *process
	client  redisClient
	timeout time.Duration // of a client of the application; 0: it is redishold's own
	strays  int           // one of so many requests arrives after that

	mu     sync.Mutex
	r      *rand.Rand
	until  time.Time // the end of an outage
	drop   bool      // what is on its way then is lost
	paused time.Time
	mended bool
	dead   bool
	ended  map[string]time.Duration // when the server carried out the last release, by owner value
	lagged time.Time                // until when something may still be on its way for long
}

func (l *redisLink) request() time.Duration {
	return l.proc.load.call() + l.travel() + l.straggle()
}

// longestStray is how late a request arrives that its client has given up, at most. Redis is told
// for a minute which requests are late.
const longestStray = 10 * time.Second

// straggle is how much longer a request is on its way if its client gives it up meanwhile: later
// ones overtake it. Only clients of an application do that.
func (l *redisLink) straggle() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timeout == 0 || l.mended || l.r.IntN(l.strays) > 0 {
		return 0
	}
	d := l.timeout + time.Duration(l.r.ExpFloat64()*float64(pick(l.r, l.timeout, time.Second)))
	d = min(d, longestStray)
	l.lag(time.Now().Add(d + time.Second))
	return d
}

// arrived notes that the server carries out a request. An acquisition may come when its Locker has
// given it up for longer than a clean-up goes on. If no release of the claim has come before it,
// nobody releases the key, and Close may have returned nil: that is said of Locker.Close.
func (l *redisLink) arrived(age time.Duration, command []string) {
	name, key, arguments := readScript(command)
	if len(arguments) < 2 || name != "acquire" && name != "release" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := arguments[0]
	if name == "release" {
		l.ended[owner] = l.h.now()
		return
	}
	ttl, err := strconv.Atoi(arguments[1])
	late := err == nil && age >= time.Duration(ttl)*time.Millisecond+5*time.Second
	released, ok := l.ended[owner]
	overtaken := ok && released > l.h.now()-age // else it was of an earlier hold
	if k := l.h.storedBy(key); k != nil && late && !overtaken {
		k.left.raise(l.h.now() + l.h.longest() + l.h.cleanUp())
	}
}

// readScript takes EVALSHA, or EVAL, apart: the name of the script, its first key, and its
// arguments, of which the first is the owner value.
func readScript(command []string) (name, key string, arguments []string) {
	const first = 3 // behind EVALSHA, the script and the number of keys
	if len(command) <= first || command[0] != "EVALSHA" && command[0] != "EVAL" {
		return "", "", nil
	}
	keys, err := strconv.Atoi(command[first-1])
	if err != nil || len(command) < first+keys {
		return "", "", nil
	}
	for _, script := range protocol.Scripts() {
		if command[1] == script.SHA || command[1] == script.Source {
			name = script.Name
		}
	}
	return name, command[first], command[first+keys:]
}

// patience is how long a client of an application waits for an answer. Once the faults are over,
// every answer comes in time.
func (l *redisLink) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mended {
		return max(l.timeout, 100*l.h.delay)
	}
	return l.timeout
}

func (l *redisLink) travel() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := time.Duration((0.5 + l.r.ExpFloat64()/2) * float64(l.h.delay))
	if !l.mended && l.h.has(losses) && l.r.IntN(50) == 0 {
		d *= time.Duration(1 + l.r.IntN(50))
		l.lag(time.Now().Add(d))
	}
	return d
}

func (l *redisLink) gap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r.IntN(4) > 0 {
		return 0
	}
	return time.Duration(l.r.ExpFloat64() * float64(l.h.delay))
}

func (l *redisLink) cut(commands int) (arrive int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mended || !l.h.has(losses) || l.r.Float64() > l.h.loss {
		return 0, false
	}
	return l.r.IntN(commands + 1), true
}

func (l *redisLink) fail(kind outage, d time.Duration) {
	l.mu.Lock()
	end := time.Now().Add(d)
	if l.dead || end.Before(l.until) {
		l.mu.Unlock()
		return
	}
	l.until, l.drop = end, kind == silent || kind == flaky
	l.lag(end)
	l.mu.Unlock()
	switch kind {
	case refused:
		l.client.Cut(d%2 == 0)
	case deaf:
		l.client.Hang(redismodel.Replies)
	default:
		l.client.Hang(redismodel.Both)
	}
	time.AfterFunc(d, l.resume)
}

// fade is nothing here: a connection to Redis has no replies that get slower.
func (l *redisLink) fade(d, silence time.Duration) {}

func (l *redisLink) pause(d time.Duration) {
	l.mu.Lock()
	l.paused = time.Now().Add(d)
	l.lag(l.paused)
	l.mu.Unlock()
	l.client.Hang(redismodel.Both)
	time.AfterFunc(d, l.resume)
}

func (l *redisLink) pausing() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.paused))
}

// resume ends what is over.
func (l *redisLink) resume() {
	l.mu.Lock()
	now := time.Now()
	over := !now.Before(l.until) && !now.Before(l.paused)
	over = over && !l.dead
	drop := l.drop
	l.drop = l.drop && !over
	l.mu.Unlock()
	if !over {
		return
	}
	if drop {
		l.client.Cut(false)
	}
	l.client.Resume()
}

func (l *redisLink) mend() {
	l.mu.Lock()
	l.mended = true
	l.until, l.paused = time.Time{}, time.Time{}
	l.mu.Unlock()
	l.resume()
}

// kill breaks the connection, and no other is made.
func (l *redisLink) kill() {
	l.mu.Lock()
	l.dead = true
	arrives := l.r.IntN(2) == 0
	l.mu.Unlock()
	l.client.Cut(arrives)
	l.client.Hang(redismodel.Both)
}

// lag notes that something may be on its way for long, until then. An earlier end changes nothing.
// The caller holds l.mu.
func (l *redisLink) lag(until time.Time) {
	if until.After(l.lagged) {
		l.lagged = until
	}
}

func (l *redisLink) lags(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lagged) < d
}

// A slow reply during an outage does not end the time in which nothing is suspended.
//
// Fails if the code is broken like this: lag that sets lagged to an earlier end, too.
func TestNothingIsSuspendedBeforeAnOutageEnds(t *testing.T) {
	var l redisLink
	now := time.Now()
	l.lag(now.Add(time.Hour))
	l.lag(now.Add(time.Millisecond))
	if !l.lags(0) || !l.lagged.Equal(now.Add(time.Hour)) {
		t.Errorf("lags until %v, want an hour from %v", l.lagged, now)
	}
}

// A process that asks its backend too often is slowed down by its requests, which take longer. The
// model asks how long they take with its mutex held: sleeping there would make whoever waits for
// the mutex keep fake time from going on, and the history would hang.
func TestLinkOfABusyProcessDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{plan: newPlan(1, losses|libraries), start: time.Now(), ring: newRing()}
		h.ring.begin(h.start)
		p := &process{h: h, load: load{h: h}}
		l := &redisLink{h: h, proc: p, timeout: time.Second, strays: 5,
			r: rand.New(rand.NewPCG(h.seed, 1))}
		began := time.Now()
		for range h.calls(h.workers) {
			l.request()
		}
		if d := l.request(); d < spinPause || !h.failed() {
			t.Errorf("a request of a process that asks too often takes %v: want %v at least", d,
				spinPause)
		}
		l.travel()
		l.gap()
		l.cut(3)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the functions of a link waited for %v", waited)
		}
	})
}

// A key is excused if an acquisition is carried out that its Locker has given up for longer than it
// cleans up, and that no release has overtaken. Nothing else is excused.
func TestLateAcquisitionLeavesItsKey(t *testing.T) {
	acquire := func(ctx context.Context, b driver.Backend, c driver.Claim) error {
		_, err := b.Acquire(ctx, c)
		return err
	}
	release := func(ctx context.Context, b driver.Backend, c driver.Claim) error {
		_, err := b.Release(ctx, c)
		return err
	}
	inspect := func(ctx context.Context, b driver.Backend, c driver.Claim) error {
		_, err := b.(driver.Inspector).Inspect(ctx, c.Key)
		return err
	}
	const ttl = time.Second
	for _, c := range []struct {
		name     string
		ask      func(context.Context, driver.Backend, driver.Claim) error
		late     time.Duration
		released bool // meanwhile
		excused  bool
	}{
		{"late", acquire, ttl + 5*time.Second, false, true},
		{"before the clean-up ends", acquire, ttl + 5*time.Second - time.Millisecond, false, false},
		{"overtaken by a release", acquire, ttl + 6*time.Second, true, false},
		{"a late release", release, ttl + 6*time.Second, false, false},
		{"a late look", inspect, ttl + 6*time.Second, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{plan: newPlan(1, libraries), start: time.Now(), ring: newRing(),
					keyed: []*keyState{newKey(0, 0)}}
				h.ring.begin(h.start)
				server := redismodel.New(redismodel.Options{})
				l := &redisLink{h: h, mended: true, timeout: 20 * time.Millisecond,
					ended: make(map[string]time.Duration)}
				var delay atomic.Int64 // of requests
				backend := server.Library(redismodel.Link{Arrived: l.arrived,
					Request: func() time.Duration { return time.Duration(delay.Load()) },
				}, l.patience).Backend()
				defer backend.Close()
				claim := driver.Claim{Key: "other", Owner: "owner", TTL: ttl, Token: 1, Block: 1}
				for _, load := range []func(context.Context, driver.Backend, driver.Claim) error{
					acquire, release, inspect} {
					if err := load(t.Context(), backend, claim); err != nil {
						t.Fatal(err)
					}
				}
				// The owner value had another hold before, which was released.
				time.Sleep(time.Second)
				claim.Key = h.keyed[0].name
				delay.Store(int64(c.late))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if err := c.ask(ctx, backend, claim); err == nil {
					t.Error("what was not answered has succeeded")
				}
				if delay.Store(0); c.released {
					if err := release(t.Context(), backend, claim); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(c.late)
				if h.litter(h.keyed[0]) != c.excused {
					t.Errorf("the key is excused: %v, want %v", !c.excused, c.excused)
				}
			})
		})
	}
}

// A script counts by whatever name it is called.
func TestReadScript(t *testing.T) {
	for _, script := range protocol.Scripts() {
		for command, text := range map[string]string{"EVALSHA": script.SHA, "EVAL": script.Source} {
			name, key, arguments := readScript([]string{command, text, "2", "k", "l", "owner"})
			if name != script.Name || key != "k" || len(arguments) != 1 || arguments[0] != "owner" {
				t.Errorf("%s of %s is read as %s, %s, %q", command, script.Name, name, key,
					arguments)
			}
		}
	}
	if name, _, _ := readScript([]string{"SET", "k", "v", "PX", "10"}); name != "" {
		t.Errorf("SET is read as the script %s", name)
	}
}
