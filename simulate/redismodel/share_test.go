package redismodel_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// tick is the unit of time of these tests. Clocks are set forward by whole ticks, and leases end
// half a tick later or earlier. So the time that the commands take does not matter.
const tick = 1000 * time.Second

// lease returns the milliseconds of a lease of so many ticks and a half.
func lease(ticks int) int64 { return (time.Duration(ticks)*tick + tick/2).Milliseconds() }

// queued is a waiter of the oracle.
type queued struct {
	owner  string
	ticket int
	last   int // the tick in which its presence ends
	shared bool
}

// oracle says what one lock on a server should be, in the words of driver.Sharer. It knows nothing
// of how the scripts do it.
type oracle struct {
	now     int
	alone   string         // who holds the lock alone; a foreign client too
	last    int            // the tick in which that lease ends
	readers map[string]int // who shares it, and the tick in which each lease ends
	queue   []queued       // dead ones stay until somebody finds them
	arrival int
	husk    int // the tick in which the lock's key ends, if its readers were removed by hand; or -1
}

// expire ends what has ended.
func (o *oracle) expire() {
	if o.last < o.now {
		o.alone = ""
	}
	maps.DeleteFunc(o.readers, func(_ string, last int) bool { return last < o.now })
	if o.husk < o.now {
		o.husk = -1
	}
}

func (o *oracle) free() bool { return o.alone == "" && len(o.readers) == 0 }

func (o *oracle) waiter(owner string) *queued {
	for i := range o.queue {
		if o.queue[i].owner == owner {
			return &o.queue[i]
		}
	}
	return nil
}

func (o *oracle) leave(owner string) {
	o.queue = slices.DeleteFunc(o.queue, func(w queued) bool { return w.owner == owner })
}

func (o *oracle) holdAlone(owner string, last int) {
	o.alone, o.last, o.husk = owner, last, -1
}

func (o *oracle) share(owner string, last int) {
	o.alone, o.husk = "", -1
	o.readers[owner] = last
}

// serve lets in those whose turn it is.
func (o *oracle) serve() {
	for len(o.queue) > 0 && o.alone == "" {
		first := o.queue[0]
		switch {
		case first.last < o.now:
		case first.shared:
			o.share(first.owner, first.last)
		case o.free():
			o.holdAlone(first.owner, first.last)
		default:
			return
		}
		o.queue = o.queue[1:]
	}
}

// after reports whether the waiter comes after one with this ticket.
func (w *queued) after(ticket int, owner string) bool {
	return ticket < w.ticket || ticket == w.ticket && owner < w.owner
}

// acquire returns whether the lock is granted and, if not, whether the owner is queued.
func (o *oracle) acquire(owner string, shared bool, ttl, presence, ticket int) (held, waits bool) {
	_, mine := o.readers[owner]
	switch {
	case o.alone == owner && shared:
		o.share(owner, o.now+ttl)
		o.serve()
		return true, false
	case o.alone == owner:
		o.last = o.now + ttl
		return true, false
	case mine && shared:
		o.readers[owner] = o.now + ttl
		return true, false
	case mine:
		return false, false
	}
	if o.free() || shared && o.alone == "" {
		var before queued
		if w := o.waiter(owner); w != nil {
			before = *w
			w.last, w.shared = o.now+ttl, shared // it is there, and gets more than its presence
		}
		o.serve()
		if w := o.waiter(owner); w != nil {
			*w = before
		}
		_, mine = o.readers[owner]
		switch {
		case mine || o.alone == owner:
			return true, false
		case len(o.queue) > 0 && shared && len(o.readers) > 0 && ticket > 0 &&
			o.waiter(owner) == nil && o.queue[0].after(ticket, owner):
			o.share(owner, o.now+ttl)
			return true, false
		case len(o.queue) > 0:
		case shared && o.alone == "":
			o.share(owner, o.now+ttl)
			return true, false
		case o.free():
			o.holdAlone(owner, o.now+ttl)
			return true, false
		}
	}
	if ticket < 0 && o.waiter(owner) == nil {
		return false, false
	}
	o.attend(owner, shared, presence, ticket)
	return false, true
}

// attend keeps a waiter present, or queues it. A ticket of 0 or less is the order of arrival.
func (o *oracle) attend(owner string, shared bool, presence, ticket int) {
	w := o.waiter(owner)
	others := len(o.queue)
	if w != nil {
		others--
	}
	if w != nil && (w.last >= o.now || others == 0) {
		w.last, w.shared = o.now+presence, shared
	} else {
		if ticket <= 0 {
			o.arrival++
			ticket = 1000 + o.arrival
		}
		o.leave(owner)
		o.queue = append(o.queue, queued{owner, ticket, o.now + presence, shared})
		slices.SortStableFunc(o.queue, func(a, b queued) int {
			return cmp.Or(cmp.Compare(a.ticket, b.ticket), strings.Compare(a.owner, b.owner))
		})
	}
	if others > 0 {
		o.queue = slices.DeleteFunc(o.queue, func(w queued) bool {
			return w.owner != owner && w.last < o.now
		})
	}
}

// release returns what release.lua does.
func (o *oracle) release(owner string) int {
	_, mine := o.readers[owner]
	switch {
	case mine:
		delete(o.readers, owner)
		o.serve()
		return 1
	case o.alone == owner:
		o.alone = ""
		o.serve()
		return 1
	}
	w := o.waiter(owner)
	waited := w != nil && w.last >= o.now
	o.leave(owner)
	o.serve()
	if waited {
		return 2
	}
	return 0
}

// renew returns whether the lock is held, and if so, whether somebody waits for it.
func (o *oracle) renew(owner string, ttl int, shared bool) (held, waiting bool) {
	_, mine := o.readers[owner]
	switch {
	case mine:
		o.readers[owner] = o.now + ttl
		o.serve()
	case o.alone == owner && shared:
		o.share(owner, o.now+ttl)
		o.serve()
	case o.alone == owner:
		o.last = o.now + ttl
	default:
		return false, false
	}
	return true, slices.ContainsFunc(o.queue, func(w queued) bool { return w.last >= o.now })
}

// bench is one lock on a server, and what it should be.
type bench struct {
	*testing.T
	do     func(args ...string) any
	step   func(time.Duration)
	random *rand.Rand
	keys   protocol.Keys
	sha    map[string]string
	want   oracle
	fence  int64
	tidy   bool // the last call has removed the readers whose leases are over
	log    []string
	seen   map[string]int
}

// TestSharingAsTheOracleSays does random things to one lock, on the model and on a real server, and
// compares the whole state with the oracle.
func TestSharingAsTheOracleSays(t *testing.T) {
	t.Parallel()
	t.Run("model", func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		compareWithOracle(t, 160, server.StepClock,
			func(args ...string) any { return shape(server.Do(args...)) })
	})
	t.Run("server", func(t *testing.T) {
		clock := redistest.NewClock(t)
		client, err := redistest.Start(t, redistest.WithClock(clock)).Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		compareWithOracle(t, 40, func(d time.Duration) { clock.Step(t, d) },
			func(args ...string) any {
				reply, err := client.Try(args...)
				if err != nil {
					return err
				}
				return reply
			})
	})
}

func compareWithOracle(t *testing.T, rounds int, step func(time.Duration),
	do func(args ...string) any) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := &bench{T: t, do: do, step: step, random: rand.New(rand.NewPCG(seed, 0)),
		keys: protocol.KeysOf("lock:a"), sha: make(map[string]string), seen: make(map[string]int)}
	for _, script := range protocol.Scripts() {
		b.sha[script.Name] = script.SHA
		do("SCRIPT", "LOAD", script.Source)
	}
	for range rounds {
		do("FLUSHALL")
		b.want = oracle{husk: -1, readers: make(map[string]int)}
		b.fence, b.log = 0, nil
		for range 60 {
			b.act()
			b.compare()
		}
	}
	for _, kind := range []string{"read", "written", "busy", "released", "left the queue",
		"lost", "renewed", "waited for", "downgraded", "let in together"} {
		if b.seen[kind] < rounds/40 {
			t.Errorf("seen %d times: %s", b.seen[kind], kind)
		}
	}
	t.Logf("seen: %v", b.seen)
}

// run runs a script on the lock's keys.
func (b *bench) run(name string, args ...string) any {
	k := b.keys
	all := append([]string{"EVALSHA", b.sha[name], "5", k.Lock, k.Queue, k.Waiters, k.Fence,
		k.Readers}, args...)
	reply := b.do(all...)
	// It is for real waiters, who come every second.
	b.do("PEXPIRE", k.Queue, "1000000000")
	b.do("PEXPIRE", k.Waiters, "1000000000")
	b.log = append(b.log, fmt.Sprintf("%3d %s %q: %v", b.want.now, name, args, reply))
	return reply
}

func (b *bench) fail(format string, args ...any) {
	b.Helper()
	b.Fatalf("%s\nwanted: %+v\nafter\n%s", fmt.Sprintf(format, args...), b.want,
		strings.Join(b.log, "\n"))
}

func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.fail("%s: got %v, want %v", what, got, want)
	}
}

// drawn checks a token: all of its block is larger than what was granted before.
func (b *bench) drawn(reply any) {
	b.Helper()
	token, ok := reply.(int64)
	if !ok || token <= b.fence {
		b.fail("got %v, want a token over %d", reply, b.fence)
	}
}

func mark(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// act does one thing.
func (b *bench) act() {
	owner := string("ABCDEF"[b.random.IntN(6)])
	// The mode is the owner's, most of the time.
	shared := (owner < "E") != (b.random.IntN(25) == 0)
	ttl := 1 + b.random.IntN(6)
	first := b.random.Int64N(300) + 1
	block := []string{strconv.FormatInt(first, 10), strconv.FormatInt(first+b.random.Int64N(4), 10)}
	readers := len(b.want.readers)
	b.tidy = false
	switch b.random.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		b.acquire(owner, shared, ttl, block)
	case 7, 8, 9:
		want := b.want.release(owner)
		b.equal("release", b.run("release", owner), want)
		b.seen[map[int]string{0: "nothing", 1: "released", 2: "left the queue"}[want]]++
	case 10, 11, 12:
		shared = shared || b.want.alone == owner && b.random.IntN(2) == 0
		downgrade := b.want.alone == owner && shared
		held, waiting := b.want.renew(owner, ttl, shared)
		draws := b.random.IntN(2) == 0
		if !draws {
			block = []string{"", ""}
		}
		reply := b.run("turn", owner, fmt.Sprint(lease(ttl)), block[0], block[1], mark(shared))
		switch {
		case !held:
			b.equal("turn", reply, 0)
			b.seen["lost"]++
		case !draws:
			b.equal("turn", reply, 1)
			b.seen["renewed"]++
		default:
			if token, ok := reply.(int64); ok && waiting {
				reply = -token
				b.seen["waited for"]++
			}
			b.drawn(reply)
		}
		b.tidy = held && len(b.want.readers) > 0
		if downgrade && held {
			b.seen["downgraded"]++
		}
	case 13, 14:
		b.renew(owner, ttl)
	case 15, 16:
		b.want.now++
		b.want.expire()
		b.step(tick)
		b.log = append(b.log, "a tick")
	case 17:
		b.byHand(ttl)
	default:
		b.acquire(owner, shared, ttl, block)
	}
	if len(b.want.readers) > readers+1 {
		b.seen["let in together"]++
	}
}

func (b *bench) acquire(owner string, shared bool, ttl int, block []string) {
	presence := b.random.IntN(4)
	ticket := []int{-1, 0, 0, 0, 0, 3, 7}[b.random.IntN(7)]
	flag := "1"
	args := []string{owner, fmt.Sprint(lease(ttl)), block[0], block[1], fmt.Sprint(lease(presence)),
		"", "", ""}
	if ticket >= 0 {
		args[5] = fmt.Sprint(ticket)
	}
	if !shared && b.random.IntN(2) == 0 {
		b.plainly(owner, ttl, args)
	}
	if shared {
		args = append(args, flag)
	}
	held, waits := b.want.acquire(owner, shared, ttl, presence, ticket)
	reply := b.run("acquire", args...)
	if held {
		b.tidy = shared
		b.drawn(reply)
		b.seen[map[bool]string{true: "read", false: "written"}[shared]]++
		return
	}
	b.seen["busy"]++
	list, ok := reply.([]any)
	if !ok {
		b.fail("got %v, want busy", reply)
	}
	place := 0
	for i, w := range b.want.live() {
		if waits && w.owner == owner {
			place = i + 1
		}
	}
	b.equal("place", list[2], place)
	if b.want.alone != "" {
		b.equal("holder", list[0], b.want.alone)
	} else if last, ok := b.want.readers[list[0].(string)]; !ok || last != b.want.longest() {
		b.fail("the holder is said to be %v", list[0])
	}
}

// plainly sends what comes before the script if nobody has contended lately.
func (b *bench) plainly(owner string, ttl int, args []string) {
	set := b.do("SET", b.keys.Lock, owner, "NX", "PX", fmt.Sprint(lease(ttl)))
	waiting := b.do("EXISTS", b.keys.Queue)
	b.equal("set without a script", set != nil,
		b.want.free() && b.want.husk < 0)
	b.log = append(b.log, fmt.Sprintf("%3d SET %s: %v, waiting: %v", b.want.now, owner, set,
		waiting))
	if set != nil && waiting == int64(1) {
		args[7] = "1"
	}
}

// renew renews together what an owner may hold with a lock that nobody holds.
func (b *bench) renew(owner string, ttl int) {
	ms := fmt.Sprint(lease(ttl))
	if b.random.IntN(2) == 0 {
		b.keep(owner, ttl, ms)
		return
	}
	want := "00"
	switch {
	case b.want.alone == owner:
		b.want.last = b.want.now + ttl
		want = "01"
	case len(b.want.readers) > 0 || b.want.husk >= 0:
		want = "0s"
	}
	b.equal("renew", b.do("EVALSHA", b.sha["renew"], "2", "lock:none", b.keys.Lock, owner, ms,
		owner, ms), want)
	b.log = append(b.log, fmt.Sprintf("%3d renew %s: %s", b.want.now, owner, want))
}

// keep renews together what an owner may share with a lock that nobody holds.
func (b *bench) keep(owner string, ttl int, ms string) {
	want := "00"
	if _, mine := b.want.readers[owner]; mine {
		b.want.readers[owner] = b.want.now + ttl
		want = "01"
	} else if b.want.alone == owner {
		want = "0a"
	}
	b.equal("keep", b.do("EVALSHA", b.sha["keep"], "4", "lock:none",
		protocol.KeysOf("lock:none").Readers, b.keys.Lock, b.keys.Readers, owner, ms, owner, ms),
		want)
	b.log = append(b.log, fmt.Sprintf("%3d keep %s: %s", b.want.now, owner, want))
}

// byHand does to the keys what others do.
func (b *bench) byHand(ttl int) {
	var command []string
	switch b.random.IntN(4) {
	case 0:
		command = []string{"DEL", b.keys.Lock}
		b.want.alone, b.want.husk = "", -1
		clear(b.want.readers)
	case 1:
		command = []string{"DEL", b.keys.Readers}
		if len(b.want.readers) > 0 {
			b.want.husk = b.want.longest()
			clear(b.want.readers)
		}
	default:
		command = []string{"SET", b.keys.Lock, "foreign", "NX", "PX", fmt.Sprint(lease(ttl))}
		if b.want.free() && b.want.husk < 0 {
			b.want.holdAlone("foreign", b.want.now+ttl)
		}
	}
	b.log = append(b.log, fmt.Sprintf("%3d %q: %v", b.want.now, command, b.do(command...)))
}

// live returns the waiters that are present.
func (o *oracle) live() []queued {
	return slices.DeleteFunc(slices.Clone(o.queue), func(w queued) bool { return w.last < o.now })
}

// longest returns the tick in which the longest lease of a reader ends.
func (o *oracle) longest() int { return slices.Max(slices.Collect(maps.Values(o.readers))) }

// remains checks what remains of something that ends in a tick.
func (b *bench) remains(what string, got any, last int) {
	b.Helper()
	if left, ok := got.(int64); !ok || left > lease(last-b.want.now) ||
		left < lease(last-b.want.now)-tick.Milliseconds()/4 {
		b.fail("%s: got %v ms, want %d", what, got, lease(last-b.want.now))
	}
}

// compare compares the keys, and what inspect.lua makes of them, with the oracle.
func (b *bench) compare() {
	keptBefore := b.do("PTTL", b.keys.Readers).(int64)
	value, left := b.do("GET", b.keys.Lock), b.do("PTTL", b.keys.Lock)
	entry := b.do("EVALSHA", b.sha["inspect"], "4", b.keys.Lock, b.keys.Queue, b.keys.Waiters,
		b.keys.Readers).([]any)
	switch {
	case b.want.alone != "":
		b.equal("value", value, b.want.alone)
		b.remains("lease", left, b.want.last)
		b.equal("holder", entry[0], b.want.alone)
	case len(b.want.readers) > 0:
		b.equal("value", value, "holdfast:shared")
		b.remains("lease", left, b.want.longest())
		// Time passes between the commands.
		if kept := b.do("PTTL", b.keys.Readers).(int64); keptBefore < left.(int64) ||
			kept > left.(int64)+2000 {
			b.fail("the readers are kept for %d to %d ms, and the lock for %d", kept, keptBefore,
				left)
		}
		if b.tidy {
			b.equal("readers kept", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"),
				len(b.want.readers))
		}
		sharers, before := entry[0].([]any), int64(1<<60)
		b.equal("sharers", len(sharers)/2, len(b.want.readers))
		for i := 0; i < len(sharers); i += 2 {
			last, ok := b.want.readers[sharers[i].(string)]
			if !ok || sharers[i+1].(int64) > before {
				b.fail("sharers: %v", sharers)
			}
			before = sharers[i+1].(int64)
			b.remains("lease of "+sharers[i].(string), before, last)
		}
	case b.want.husk >= 0:
		b.equal("value", value, "holdfast:shared")
		b.equal("sharers", entry[0], "[]")
	default:
		b.equal("value", value, nil)
		b.equal("holder", entry[0], nil)
	}
	waiters := b.want.live()
	b.equal("waiters", len(entry)/2-1, len(waiters))
	for i, w := range waiters {
		b.equal("waiter", entry[2+2*i], w.owner)
		b.remains("presence of "+w.owner, entry[3+2*i], w.last)
	}
	if score, ok := b.do("ZSCORE", b.keys.Fence, "t").(string); ok {
		fence, err := strconv.ParseInt(score, 10, 64)
		if err != nil || fence < b.fence {
			b.fail("the fence was %d and is %s", b.fence, score)
		}
		b.fence = fence
	}
}
