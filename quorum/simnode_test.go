package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// network is N simulated servers and the connections of simulated clients to them, in the fake time
// of a bubble. All of them share one mutex. What chance decides depends on the seed and on what is
// decided, never on the order in which goroutines run.
type network struct {
	seed    uint64
	start   time.Time
	mu      sync.Mutex
	servers []*server
	conns   []*conn
	weather weather
	ambush  ambush

	presence  time.Duration
	presences []time.Duration // of each server, 0: it keeps no queue; nil: presence of all
	trace     func(format string, args ...any)

	last bool // who comes without a ticket comes last on each server, as on Redis, not by its clock

	broken fault // of all servers, to show that the checks notice

	applied func(keys []string) // is called when a request has taken effect

	freed map[string][]freed // by owner value

	moved func() // is called when a server was moved to another set
}

// freed is a release that has taken effect on a server where its claim held the key.
type freed struct {
	server int
	at     time.Time
}

// fault is what servers do that is wrong.
type fault uint8

const (
	none               fault = iota
	deafToRaise              // acknowledge a token without storing it
	raiseWithoutKey          // acknowledge a token though the key is another's
	releaseForAll            // release without comparing the owner
	renewForAll              // renew without comparing the owner
	serveInQuarantine        // vote in quarantine
	grantTwice               // grant a key that another holds, now and then
	ignoreReleases           // confirm a release and do nothing
	noticeInQuarantine       // tell of grants from a queue of an earlier run, also in quarantine
	anySet                   // take part for every set of nodes
	lossUnseen               // take part at once after they have lost their data in the same run
)

// weather is how bad the network is, in probabilities of each message, and delays.
type weather struct {
	loseRequest, loseReply, repeat float64
	loseNotice, repeatNotice       float64
	lateNotice                     float64       // probability of a delay up to twice the presence
	delay                          time.Duration // mean one-way delay
	straggle                       float64       // probability of a delay 50 times as long

	lateRenewal float64       // probability that a renewal is late, so that later calls overtake it
	lateMost    time.Duration // by how much at most
}

// server is one node: what it stores, and what is wrong with it.
type server struct {
	net   *network
	index int

	keys   map[string]*simKey
	fence  driver.Token // shared by all keys, as by those of one hash slot
	ticket uint64

	// fences has a counter of tokens for each key, as keys of different slots have; nil: fence
	fences map[string]driver.Token

	// The server's clock runs at rate since set, when it showed shown.
	rate  float64
	set   time.Time
	shown time.Duration

	member driver.Set // which it belongs to
	saved  *disk      // what a restart that rolls it back brings back; nil: nothing

	life     int           // counts restarts
	down     bool          // crashed: calls hang, or are refused
	refusing bool          // while down
	slow     time.Duration // by how much it answers later
	frozen   bool          // calls take effect after the thaw
	parked   []func()      // calls that arrived while it was frozen
	durable  bool          // its operator's word: it never loses what it has answered
	returned bool          // it was rolled back
	started  bool          // it was restarted,
	upSince  time.Duration // then, by its clock
	// since when it has had its data, by its clock; it goes with them, and no client is told
	memory time.Duration
	empty  bool // it does not know that, and will from when it is asked
}

// disk is what a server had stored when it last reached its disk. A restart counts as one whatever
// it says of the memory.
type disk struct {
	keys   map[string]*simKey
	fence  driver.Token
	ticket uint64
	set    driver.Set
}

// data is what a server has of its data after a restart.
type data uint8

const (
	kept       data = iota // all
	rolledBack             // what it had stored a while ago
	forgotten              // nothing
)

type simKey struct {
	owner   string
	expires time.Duration // by the server's clock
	token   driver.Token
	queue   []*simWaiter

	sharers []simSharer // the longest lease last, which is the owner's; nil: the owner is alone
}

// give has somebody hold a key who has not asked for it. The caller holds the network's mutex.
func (s *server) give(key, owner string, ttl time.Duration) {
	s.keys[key] = &simKey{owner: owner, expires: s.now() + ttl}
}

type simWaiter struct {
	conn   *conn
	owner  string
	ticket uint64
	until  time.Duration
	token  driver.Token
	block  uint64
	shared bool
	life   int // of the server, when it was asked for last
}

// conn is a client's connection to a server. It is a driver.Backend.
type conn struct {
	net    *network
	server *server
	client int

	cut     bool // requests and replies get lost
	deaf    bool // calls do not end with their context
	held    bool // replies and notices wait
	waiting []func()
	stopped chan struct{} // the client is paused, until it is closed; nil: it is not
	paused  int           // how often it was
	guard   time.Duration
	set     driver.Set
	closed  bool
	heard   func(driver.Notice)
	arrival map[string]time.Time // of the last request for a key: order is kept
	luck    map[[2]string]*luck
	made    map[string]uint64 // calls of a kind
}

func newNetwork(seed uint64, n int, w weather, presence time.Duration) *network {
	net := &network{seed: seed, start: time.Now(), weather: w, presence: presence,
		freed: make(map[string][]freed)}
	for i := range n {
		net.servers = append(net.servers, &server{
			net: net, index: i, keys: make(map[string]*simKey), rate: 1, set: net.start,
			shown: time.Hour,
		})
	}
	return net
}

// dial returns a client's connections to all servers.
func (net *network) dial() []*conn {
	net.mu.Lock()
	defer net.mu.Unlock()
	var conns []*conn
	client := len(net.conns) / len(net.servers)
	for _, s := range net.servers {
		conns = append(conns, &conn{
			net: net, server: s, client: client,
			arrival: make(map[string]time.Time), luck: make(map[[2]string]*luck),
			made: make(map[string]uint64),
		})
	}
	net.conns = append(net.conns, conns...)
	return conns
}

func backends(conns []*conn) []driver.Backend {
	list := make([]driver.Backend, len(conns))
	for i, c := range conns {
		list[i] = c
	}
	return list
}

// luck is the source of chance for the messages of one kind about one key on one connection.
type luck struct {
	seed  uint64
	count [decisions]uint64
}

// decision is what chance decides.
type decision uint8

const (
	forth decision = iota
	forthStraggles
	back
	backStraggles
	losesRequest
	losesReply
	repeats
	returns
	isLate
	howLate
	isOvertaken
	overtakenBy
	strikes
	strikesHow
	strikesWhere
	strikesFor
	isLastMoment
	decisions
)

func (c *conn) luckOf(what, key string) *luck {
	l := c.luck[[2]string{what, key}]
	if l == nil {
		l = &luck{seed: c.net.seed ^ uint64(c.client)<<32 ^ uint64(c.server.index)<<40}
		for _, b := range []byte(what + " " + key) {
			l.seed = mix(l.seed ^ uint64(b))
		}
		c.luck[[2]string{what, key}] = l
	}
	return l
}

// throw returns a number in [0, 1) that depends on what is decided, and on how often that was.
func (l *luck) throw(d decision) float64 {
	l.count[d]++
	return float64(mix(l.seed^uint64(d)<<56^l.count[d])>>11) / (1 << 53)
}

// happens decides with probability p.
func (l *luck) happens(d decision, p float64) bool { return p > 0 && l.throw(d) < p }

// delay is that of a message in one direction.
func (l *luck) delay(w *weather, way decision) time.Duration {
	d := float64(w.delay) * 2 * l.throw(way)
	if l.happens(way+1, w.straggle) {
		d *= 50
	}
	return time.Duration(d)
}

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// now is what the server's clock shows.
func (s *server) now() time.Duration {
	return s.shown + time.Duration(float64(time.Since(s.set))*s.rate)
}

// presence is how long a waiter counts as present after it has asked.
func (s *server) presence() time.Duration {
	if s.net.presences != nil {
		return s.net.presences[s.index]
	}
	return s.net.presence
}

// setClock makes the clock jump, and run at another rate.
func (s *server) setClock(jump time.Duration, rate float64) {
	s.shown, s.set, s.rate = s.now()+jump, time.Now(), rate
}

func (s *server) crash(refusing bool) {
	s.life++
	s.down, s.refusing, s.frozen, s.parked = true, refusing, false, nil
}

func (s *server) restart(left data) {
	s.life++
	s.down, s.frozen, s.parked = false, false, nil
	s.started, s.upSince = true, s.now()
	switch {
	case left == kept:
		return
	case left == rolledBack && s.saved != nil:
		s.returned = true
		s.restore(s.saved)
	default:
		s.restore(&disk{})
	}
}

// flush has the server lose its data in the same run: whatever is under way goes on.
func (s *server) flush() {
	s.restore(&disk{})
	s.empty = true
}

// save stores what the server has.
func (s *server) save() {
	s.saved = &disk{copyKeys(s.keys), s.fence, s.ticket, s.member}
}

func (s *server) restore(d *disk) {
	s.keys, s.fence, s.ticket, s.member = copyKeys(d.keys), d.fence, d.ticket, d.set
	clear(s.fences)
}

func copyKeys(keys map[string]*simKey) map[string]*simKey {
	copied := make(map[string]*simKey)
	for name, k := range keys {
		c := *k
		c.queue, c.sharers = nil, slices.Clone(k.sharers)
		for _, w := range k.queue {
			waiter := *w
			c.queue = append(c.queue, &waiter)
		}
		copied[name] = &c
	}
	return copied
}

func (s *server) thaw() {
	s.frozen = false
	parked := s.parked
	s.parked = nil
	for _, f := range parked {
		f()
	}
}

var (
	errSimRefused = errors.New("connection refused")
	errSimClosed  = errors.New("connection closed")
)

// request is what a client asks a server for.
type request struct {
	what   string
	keys   []string
	renews bool // so later calls may overtake it
}

// lateness returns how much later than in its turn a request arrives. Calls that are made later
// may overtake a renewal, as package driver says, and nothing else.
func (req *request) lateness(chance *luck, w *weather) time.Duration {
	if !req.renews || !chance.happens(isOvertaken, w.lateRenewal) {
		return 0
	}
	return time.Duration(float64(w.lateMost) * chance.throw(overtakenBy))
}

// do sends a request and waits for the reply. apply runs on the server when the request takes
// effect. It is the way of one request, from the client to the server and back, with what can
// happen to it at each step.
func do[T any](ctx context.Context, c *conn, req request, apply func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var none T
	net, s, what, keys := c.net, c.server, req.what, req.keys
	replies := make(chan reply, 2)
	c.gate()
	net.mu.Lock()
	c.made[what]++
	switch {
	case c.closed:
		net.mu.Unlock()
		return none, &driver.Error{Err: errSimClosed}
	case ctx.Err() != nil:
		net.mu.Unlock()
		return none, &driver.Error{Err: ctx.Err()}
	case s.down && s.refusing:
		net.mu.Unlock()
		return none, &driver.Error{Err: errSimRefused}
	}
	key := ""
	if len(keys) > 0 {
		key = keys[0]
	}
	chance, w := c.luckOf(what, key), &net.weather
	arrive := time.Now().Add(chance.delay(w, forth))
	for _, k := range keys {
		if last := c.arrival[k]; !arrive.After(last) {
			arrive = last.Add(1)
		}
	}
	for _, k := range keys {
		c.arrival[k] = arrive
	}
	late := req.lateness(chance, w)
	arrive = arrive.Add(late) // what is sent next does not wait for it
	life := s.life
	lost := c.cut || chance.happens(losesRequest, w.loseRequest)
	repeat := chance.happens(repeats, w.repeat)
	loseReply := chance.happens(losesReply, w.loseReply)
	delay := chance.delay(w, back)
	deadline, lastMoment := ctx.Deadline()
	lastMoment = lastMoment && chance.happens(isLastMoment, net.ambush.lastMoment)
	respond := func(r reply) {
		if loseReply || c.cut {
			return
		}
		way := delay + s.slow
		if lastMoment {
			way = time.Until(deadline)
		}
		after(way, func() {
			net.mu.Lock()
			defer net.mu.Unlock()
			if c.held {
				c.waiting = append(c.waiting, func() { replies <- r })
				return
			}
			replies <- r
		})
	}
	if net.trace != nil {
		net.trace("%d-%d: %s %s is sent, lost %v, reply lost %v, late by %v", c.client, s.index,
			what, key, lost, loseReply, late)
	}
	effect := func() {
		if net.trace != nil {
			net.trace("%d-%d: %s %s takes effect", c.client, s.index, what, key)
		}
		value, err := apply()
		if repeat {
			value, err = apply()
		}
		respond(reply{value, err})
		if net.applied != nil {
			net.applied(keys)
		}
		net.decided(c, momentOf(what, value))
	}
	if !lost {
		after(time.Until(arrive), func() {
			net.mu.Lock()
			defer net.mu.Unlock()
			switch {
			case s.down || s.life != life:
			case s.frozen:
				s.parked = append(s.parked, effect)
			default:
				effect()
			}
		})
	}
	if c.deaf {
		ctx = context.Background()
	}
	net.mu.Unlock()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		// Calls that were made together do not return at the same instant, whose order would be
		// chance.
		net.mu.Lock()
		late := time.Duration(1e4 * chance.throw(returns))
		net.mu.Unlock()
		time.Sleep(late)
		return none, &driver.Error{Maybe: true, Err: ctx.Err()}
	}
}

func (c *conn) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	req := request{what: "acquire", keys: []string{claim.Key}}
	return do(ctx, c, req, func() (driver.Result, error) {
		if err := c.refusal(); err != nil {
			return driver.Result{}, err
		}
		return c.server.acquire(c, claim), nil
	})
}

func (c *conn) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	req := request{what: "renew", renews: true, keys: make([]string, len(claims))}
	for i := range claims {
		req.keys[i] = claims[i].Key
	}
	return do(ctx, c, req, func() ([]driver.Result, error) {
		results := make([]driver.Result, len(claims))
		for i := range claims {
			if err := c.refusal(); err != nil {
				return nil, err
			}
			results[i] = c.server.renew(claims[i])
		}
		return results, nil
	})
}

func (c *conn) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	req := request{what: "release", keys: []string{claim.Key}}
	return do(ctx, c, req, func() (driver.Result, error) {
		r := c.server.release(claim)
		if r.State == driver.Held {
			c.net.freed[claim.Owner] = append(c.net.freed[claim.Owner],
				freed{c.server.index, time.Now()})
		}
		return r, nil
	})
}

func (c *conn) Identity(ctx context.Context) (string, error) {
	return do(ctx, c, request{what: "identity"}, func() (string, error) {
		return fmt.Sprintf("%d.%d", c.server.index, c.server.life), nil
	})
}

// Join implements driver.Member. The server compares with every request.
func (c *conn) Join(set driver.Set) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.set = set
}

func (c *conn) Belongs(ctx context.Context) (driver.Set, error) {
	return do(ctx, c, request{what: "belongs"}, func() (driver.Set, error) {
		return c.server.member, nil
	})
}

func (c *conn) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	return do(ctx, c, request{what: "move"}, func() (driver.Set, error) {
		if c.server.member == from {
			c.server.member = to
			if c.net.moved != nil {
				c.net.moved()
			}
		}
		return c.server.member, nil
	})
}

func (c *conn) Guard(guard time.Duration) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.guard = guard
}

func (c *conn) Notify(f func(driver.Notice)) (stop func()) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.heard = f
	return func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		c.heard = nil
	}
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.closed = true
	return nil
}

// pause stops the client. Called with net.mu held.
func (c *conn) pause() {
	if c.stopped == nil {
		c.paused++
		c.held, c.stopped = true, make(chan struct{})
	}
}

// gate waits while the client is paused.
func (c *conn) gate() {
	for {
		c.net.mu.Lock()
		stopped := c.stopped
		c.net.mu.Unlock()
		if stopped == nil {
			return
		}
		<-stopped
	}
}

// pauses returns how often the client was paused.
func (c *conn) pauses() int {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.paused
}

// resume lets the replies and notices go that a paused client did not read, and the requests that
// it did not send. Called with net.mu held.
func (c *conn) resume() {
	if c.stopped != nil {
		close(c.stopped)
		c.stopped = nil
	}
	c.held = false
	waiting := c.waiting
	c.waiting = nil
	for _, f := range waiting {
		f()
	}
}

// refusal says why the server does not take part for the client: it belongs to another set, or is
// in its quarantine, which the client counts.
func (c *conn) refusal() error {
	s := c.server
	switch none := (driver.Set{}); {
	case c.set == none || s.member.Admits(c.set) || s.net.broken == anySet:
	case s.member == none:
		s.member = c.set
	default:
		return &driver.Error{Permanent: true, Err: &driver.SetError{Want: c.set, Have: s.member}}
	}
	if c.guard == 0 || s.durable || s.net.broken == serveInQuarantine {
		return nil
	}
	if s.empty {
		s.empty, s.memory = false, s.now()
	}
	rest := time.Duration(0)
	if s.started {
		rest = c.guard - (s.now() - s.upSince)
	}
	if s.net.broken != lossUnseen {
		rest = max(rest, c.guard-(s.now()-s.memory))
	}
	if rest > 0 {
		return &driver.Error{Err: &driver.QuarantineError{Remaining: rest}}
	}
	return nil
}

// settle ends a lease that has run out, and passes a free key on.
func (s *server) settle(key string, asker string) *simKey {
	k := s.keys[key]
	if k == nil {
		k = new(simKey)
		s.keys[key] = k
	}
	now := s.now()
	k.queue = slices.DeleteFunc(k.queue, func(w *simWaiter) bool { return now >= w.until })
	k.expire(now)
	switch {
	case k.owner == "" || now >= k.expires:
		s.pass(key, k, asker)
	case k.shared():
		s.letIn(key, k, asker)
	}
	return k
}

func (s *server) pass(key string, k *simKey, asker string) {
	k.owner, k.token, k.sharers = "", 0, nil
	now := s.now()
	for len(k.queue) > 0 && k.owner == "" {
		w := k.queue[0]
		k.queue = k.queue[1:]
		if now < w.until {
			s.admit(key, k, w, asker)
		}
	}
	if k.shared() {
		s.letIn(key, k, asker)
	}
}

// admit grants the key to a waiter that was taken out of the queue.
func (s *server) admit(key string, k *simKey, w *simWaiter, asker string) {
	token := s.draw(key, w.token, w.block)
	if w.shared {
		k.share(simSharer{w.owner, w.until, token})
	} else {
		k.owner, k.expires, k.token = w.owner, w.until, token
	}
	n := driver.Notice{Kind: driver.Granted, Key: key, Owner: w.owner, Token: token,
		Block: w.block}
	if s.net.broken != noticeInQuarantine && (w.life != s.life || w.conn.refusal() != nil) {
		// it may be another's on the other servers
		n = driver.Notice{Kind: driver.Freed, Key: key, Owner: w.owner}
	}
	if w.owner != asker {
		w.conn.push(n)
		s.net.decided(w.conn, handsOver)
	}
}

func (s *server) draw(key string, proposed driver.Token, block uint64) driver.Token {
	t := max(s.fenceOf(key)+1, proposed)
	last := t + driver.Token(max(block, 1)) - 1
	if s.fences != nil {
		s.fences[key] = last
	} else {
		s.fence = last
	}
	return t
}

// fenceOf returns the largest token that was drawn for a key.
func (s *server) fenceOf(key string) driver.Token {
	if s.fences != nil {
		return s.fences[key]
	}
	return s.fence
}

func (s *server) acquire(c *conn, claim driver.Claim) driver.Result {
	k := s.settle(claim.Key, claim.Owner)
	now := s.now()
	mine := k.sharer(claim.Owner) >= 0
	switch alone := k.owner == "" || k.owner == claim.Owner && !k.shared(); {
	case claim.Shared && (k.owner == "" || mine || k.shared() && k.behind(&claim)):
		token := s.draw(claim.Key, claim.Token, claim.Block)
		k.share(simSharer{claim.Owner, now + claim.TTL, token})
		return driver.Result{State: driver.Held, Token: token}
	case alone || s.net.broken == grantTwice && s.fence%8 == 0:
		k.sharers = nil
		k.owner, k.expires = claim.Owner, now+claim.TTL
		k.token = s.draw(claim.Key, claim.Token, claim.Block)
		return driver.Result{State: driver.Held, Token: k.token}
	}
	result := driver.Result{State: driver.Busy, Holder: k.owner, ExpiresIn: k.expires - now}
	at := slices.IndexFunc(k.queue, func(w *simWaiter) bool { return w.owner == claim.Owner })
	if at < 0 && (!claim.Queue || mine) {
		return result
	}
	result.Presence, result.Clock = min(s.presence(), claim.TTL), uint64(now/time.Microsecond)
	if result.Presence == 0 {
		return result // this kind of node keeps no queue
	}
	var w *simWaiter
	if at >= 0 {
		w = k.queue[at]
	} else {
		w = &simWaiter{conn: c, owner: claim.Owner, ticket: claim.Ticket, shared: claim.Shared}
		if w.ticket == 0 {
			s.ticket = max(s.ticket+1, uint64(now/time.Microsecond))
			if last := len(k.queue) - 1; s.net.last && last >= 0 {
				s.ticket = max(s.ticket, k.queue[last].ticket+1)
			}
			w.ticket = s.ticket
		}
		at, _ = slices.BinarySearchFunc(k.queue, w, func(a, b *simWaiter) int {
			return a.order(b.ticket, b.owner)
		})
		k.queue = slices.Insert(k.queue, at, w)
	}
	w.until, w.token, w.block, w.life = now+result.Presence, claim.Token, claim.Block, s.life
	result.Place = at + 1
	return result
}

func (s *server) renew(claim driver.Claim) driver.Result {
	k := s.keys[claim.Key]
	now := s.now()
	if k != nil {
		k.expire(now)
		if now >= k.expires {
			k.owner = "" // also if the clock is set back later
		}
	}
	if k == nil || k.owner != claim.Owner && k.sharer(claim.Owner) < 0 {
		switch {
		case s.net.broken == raiseWithoutKey && claim.Block > 0:
			s.fence = max(s.fence, claim.Token+driver.Token(claim.Block)-1)
			return driver.Result{State: driver.Held, Token: claim.Token}
		case s.net.broken == renewForAll:
			return driver.Result{State: driver.Held}
		}
		return driver.Result{State: driver.Lost}
	}
	if k.shared() {
		return s.renewShared(claim, k)
	}
	k.expires = now + claim.TTL
	result := driver.Result{State: driver.Held}
	if claim.Block > 0 {
		k.queue = slices.DeleteFunc(k.queue, func(w *simWaiter) bool { return now >= w.until })
		result.Waiting = len(k.queue) > 0
		if s.net.broken == deafToRaise {
			result.Token = max(claim.Token, k.token)
			return result
		}
		k.token = s.draw(claim.Key, claim.Token, claim.Block)
		result.Token = k.token
	}
	if claim.Shared { // held alone until now
		k.share(simSharer{k.owner, k.expires, k.token})
		s.letIn(claim.Key, k, "")
	}
	return result
}

func (s *server) release(claim driver.Claim) driver.Result {
	k := s.settle(claim.Key, "")
	if s.net.broken == ignoreReleases {
		return driver.Result{State: driver.Held}
	}
	if k.sharer(claim.Owner) >= 0 {
		k.leave(claim.Owner)
		s.settle(claim.Key, "")
		return driver.Result{State: driver.Held}
	}
	if k.owner == claim.Owner || k.owner != "" && s.net.broken == releaseForAll {
		s.pass(claim.Key, k, "")
		return driver.Result{State: driver.Held}
	}
	for i, w := range k.queue {
		if w.owner == claim.Owner {
			k.queue = slices.Delete(k.queue, i, i+1)
			s.settle(claim.Key, "") // it may have kept others from sharing
			return driver.Result{State: driver.Busy}
		}
	}
	return driver.Result{State: driver.Lost}
}

// push sends a notice to a client.
func (c *conn) push(n driver.Notice) {
	chance, w := c.luckOf("notice", n.Key), &c.net.weather
	if c.cut || chance.happens(losesReply, w.loseNotice) {
		return
	}
	copies := 1
	if chance.happens(repeats, w.repeatNotice) {
		copies = 2
	}
	for i := range copies {
		d := chance.delay(w, back)
		if i > 0 || chance.happens(isLate, w.lateNotice) {
			d += time.Duration(float64(2*c.server.presence()) * chance.throw(howLate))
		}
		after(d, func() { c.arrive(n) })
	}
}

// arrive hands a notice over, unless the client is paused.
func (c *conn) arrive(n driver.Notice) {
	c.net.mu.Lock()
	f := c.heard
	if c.net.trace != nil {
		c.net.trace("%d-%d: notice %d for %s, token %d", c.client, c.server.index, n.Kind,
			n.Owner, n.Token)
	}
	if c.held {
		c.waiting = append(c.waiting, func() { go c.arrive(n) })
		f = nil
	}
	c.net.mu.Unlock()
	if f != nil {
		f(n)
	}
}

// describe prints who holds a key and who waits for it.
func (net *network) describe(key string) string {
	net.mu.Lock()
	defer net.mu.Unlock()
	return net.describeLocked(key)
}

func (net *network) describeLocked(key string) string {
	var b strings.Builder
	for _, s := range net.servers {
		now := s.now()
		fmt.Fprintf(&b, "\n  server %d: ", s.index)
		k := s.keys[key]
		if k == nil || k.owner == "" {
			b.WriteString("free")
		} else {
			fmt.Fprintf(&b, "held by %s for %v", k.owner, k.expires-now)
		}
		if k != nil {
			for _, o := range k.sharers {
				fmt.Fprintf(&b, "; %s shares it for %v", o.owner, o.expires-now)
			}
		}
		if k != nil {
			for _, w := range k.queue {
				fmt.Fprintf(&b, "; %s waits for %v", w.owner, w.until-now)
			}
		}
	}
	return b.String()
}

// after calls f in a goroutine of its own after d, at once if d is not positive: a timer that is
// due when it is set can crash the race detector (see "No timer channels" in DESIGN.md).
func after(d time.Duration, f func()) {
	if d <= 0 {
		go f()
		return
	}
	time.AfterFunc(d, f)
}
