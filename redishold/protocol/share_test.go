package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// share runs acquire.lua for an owner that would share, with tokens from 100.
func (b *bench) share(owner, ticket string, ttl int) any {
	b.Helper()
	return b.run("acquire", owner, fmt.Sprint(ttl), "100", "103", "3000", ticket, "Pchannel", "",
		"1")
}

// wantLease checks that a key ends in about so many ms: at most that, and not a second earlier.
func (b *bench) wantLease(key string, ms int64) {
	b.Helper()
	if left := b.do("PTTL", key).(int64); left > ms+setBack || left < ms-1000 {
		b.Fatalf("%s ends in %d ms, not in %d", key, left, ms)
	}
}

func TestShareScripts(t *testing.T) {
	server := still(t)
	for name, f := range map[string]func(*bench){
		"LockLastsAsLongAsTheLongest": (*bench).testLongestLease,
		"StrangersAreExcluded":        (*bench).testStrangers,
		"StaleReadersDoNotComeBack":   (*bench).testStaleReaders,
		"LetInTogether":               (*bench).testLetInTogether,
		"NotAheadOfWaiters":           (*bench).testNotAheadOfWaiters,
		"FreeWithWaiters":             (*bench).testFreeWithWaiters,
		"Downgrade":                   (*bench).testDowngrade,
		"WaitingForThoseWhoShare":     (*bench).testWaitingForSharers,
		"OvertakenRenewal":            (*bench).testOvertakenRenewal,
		"Keep":                        (*bench).testKeep,
		"NoUpgrade":                   (*bench).testNoUpgrade,
		"OutOfMemory":                 (*bench).testOutOfMemory,
		"InspectShared":               (*bench).testInspectShared,
	} {
		t.Run(name, func(t *testing.T) { f(newBench(t, server)) })
	}
}

// The lock's own TTL is that of the longest lease, whatever comes and goes.
func (b *bench) testLongestLease() {
	b.want("A", b.share("A", "", 10_000), 100)
	b.want("the lock", b.do("GET", "lock:a"), "holdfast:shared")
	b.wantLease("lock:a", 10_000)
	b.want("B", b.share("B", "", 50_000), 104)
	b.wantLease("lock:a", 50_000)
	b.want("C", b.share("C", "", 20_000), 108)
	b.wantLease("lock:a", 50_000)
	lock, readers := b.do("PTTL", "lock:a").(int64), b.do("PTTL", b.keys.Readers).(int64)
	if readers < lock+900 || readers > lock+1000+setBack {
		b.Fatalf("the readers end in %d ms, and the lock in %d; want about a second later",
			readers, lock)
	}
	b.want("B goes", b.run("release", "B"), 1)
	b.wantLease("lock:a", 20_000)
	b.want("A renews", b.run("turn", "A", "90000", "", "", "1"), 1)
	b.wantLease("lock:a", 90_000)
	b.want("A renews for less", b.run("turn", "A", "5000", "", "", "1"), 1)
	b.wantLease("lock:a", 20_000)
	b.want("C goes", b.run("release", "C"), 1)
	b.want("C goes again", b.run("release", "C"), 0)
	b.wantLease("lock:a", 5000)
	b.want("A goes", b.run("release", "A"), 1)
	b.wantOnly(b.keys.Fence)
}

// Another library's SET NX, and our own without a script, are refused while anybody reads.
func (b *bench) testStrangers() {
	b.share("A", "", 10_000)
	b.want("a stranger", b.do("SET", "lock:a", "x", "NX", "PX", "1000"), nil)
	b.wantBusy("a writer", b.acquire("W", ""), "A", 0)
	b.run("release", "A")
	b.want("a stranger", b.do("SET", "lock:a", "x", "NX", "PX", "10000"), "OK")
	b.wantBusy("a reader", b.share("A", "", 10_000), "x", 0)
	b.want("the reader renews", b.run("turn", "A", "10000", "", "", "1"), 0)
	b.want("the reader releases", b.run("release", "A"), 0)
	b.want("the stranger's", b.do("GET", "lock:a"), "x")
}

// A reader of a lock that was lost has lost it for good, even if the set of readers is still there.
func (b *bench) testStaleReaders() {
	lose := map[string]func(){
		"deleted": func() { b.do("DEL", "lock:a") },
		"taken":   func() { b.do("SET", "lock:a", "x") },
		"held in between": func() {
			b.do("DEL", "lock:a")
			b.acquire("W", "")
			b.run("release", "W")
		},
		"read again":       func() { b.do("DEL", "lock:a"); b.share("B", "", 10_000) },
		"readers are gone": func() { b.do("DEL", b.keys.Readers) },
		"downgraded since": func() {
			b.do("DEL", "lock:a")
			b.acquire("W", "")
			b.run("turn", "W", "10000", "", "", "1")
		},
		"handed to a reader": func() {
			b.do("DEL", "lock:a")
			b.acquire("W", "")
			b.share("B", "0", 10_000)
			b.run("release", "W")
		},
	}
	for name, f := range lose {
		b.do("FLUSHALL")
		b.share("A", "", 10_000)
		f()
		b.want(name, b.run("turn", "A", "10000", "", "", "1"), 0)
		value := b.do("GET", "lock:a")
		b.want(name+", released", b.run("release", "A"), 0)
		b.want(name+", the lock", b.do("GET", "lock:a"), value)
	}
}

// All that share and come next are let in at once, each with tokens of its own, and told.
func (b *bench) testLetInTogether() {
	listener, err := b.server.Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	if _, err := listener.Try("SUBSCRIBE", "channel"); err != nil {
		b.Fatal(err)
	}
	b.acquire("W", "")
	b.wantBusy("A", b.share("A", "0", 10_000), "W", 1)
	b.wantBusy("B", b.share("B", "0", 10_000), "W", 2)
	b.run("acquire", "D", "10000", "100", "103", dead, "0", "", "")
	b.wantBusy("C", b.share("C", "0", 10_000), "W", 3)
	b.wantBusy("X", b.acquire("X", "0"), "W", 4)
	b.wantBusy("E", b.share("E", "0", 10_000), "W", 5)
	b.want("release", b.run("release", "W"), 1)
	for i, owner := range []string{"A", "B", "C"} {
		message, err := listener.Read()
		if err != nil {
			b.Fatal(err)
		}
		b.want("message", message, []any{"message", "channel",
			fmt.Sprint(104+4*i, " 4 1 ", owner, "lock:a")})
	}
	b.want("readers", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 3)
	b.wantLease("lock:a", 3000)
	b.want("A confirms", b.share("A", "0", 10_000), 116)
	b.wantLease("lock:a", 10_000)
	b.want("A goes", b.run("release", "A"), 1)
	b.want("B goes", b.run("release", "B"), 1)
	b.want("C goes", b.run("release", "C"), 1)
	b.want("X alone", b.do("GET", "lock:a"), "X")
	b.want("X goes", b.run("release", "X"), 1)
	b.want("E", b.do("ZSCORE", b.keys.Readers, "E") != nil, true)
}

// Nobody who would share goes ahead of one who waits, but those who share already.
func (b *bench) testNotAheadOfWaiters() {
	b.share("A", "", 10_000)
	b.wantBusy("X", b.acquire("X", "0"), "A", 1)
	b.wantBusy("B", b.share("B", "0", 10_000), "A", 2)
	b.wantBusy("C, without queueing", b.share("C", "", 10_000), "A", 0)
	b.wantBusy("Y", b.acquire("Y", "9"), "A", 1)
	b.wantBusy("E, with a later ticket", b.share("E", "10", 10_000), "A", 2)
	b.want("Y leaves", b.run("release", "Y"), 2)
	b.want("E was let in", b.run("release", "E"), 1)
	b.want("F, with the earliest ticket", b.share("F", "5", 10_000), 108)
	b.run("release", "F")
	b.wantBusy("B keeps its place", b.share("B", "3", 10_000), "A", 2)
	b.want("A again", b.share("A", "0", 10_000), 112)
	b.want("X leaves", b.run("release", "X"), 2)
	b.want("B was let in", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 2)
	b.want("C", b.share("C", "", 10_000), 120)
	b.run("acquire", "Y", "10000", "100", "103", dead, "0", "", "")
	b.want("D, as Y is dead", b.share("D", "", 10_000), 124)
}

// If nobody was told that the lock is free, the first waiter that would share and asks has its
// turn, and so have those behind it, but not the next writer.
func (b *bench) testFreeWithWaiters() {
	b.acquire("W", "")
	b.share("A", "0", 10_000)
	b.share("B", "0", 10_000)
	b.acquire("X", "0")
	b.share("C", "0", 10_000)
	b.do("DEL", "lock:a")
	b.want("A", b.share("A", "0", 10_000), 108)
	b.want("readers", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 2)
	b.wantLease("lock:a", 10_000)
	b.wantBusy("X", b.acquire("X", "0"), "A", 1)
	b.do("DEL", "lock:a")
	b.wantBusy("C, behind X", b.share("C", "0", 10_000), "X", 1)
	b.want("X alone", b.do("GET", "lock:a"), "X")
	b.do("DEL", "lock:a")
	b.want("C, alone in the queue", b.share("C", "0", 10_000), 116)
	b.wantLease("lock:a", 10_000)
	b.do("FLUSHALL")
	b.acquire("W", "")
	b.share("A", "0", 10_000)
	b.acquire("X", "0")
	b.do("DEL", "lock:a")
	b.want("A, and X is next to it", b.share("A", "0", 10_000), 104)
	b.wantBusy("X", b.acquire("X", "0"), "A", 1)
}

func (b *bench) testDowngrade() {
	b.acquire("A", "")
	b.share("B", "0", 10_000)
	b.acquire("X", "0")
	b.share("C", "0", 10_000)
	b.want("A shares from now on", b.run("turn", "A", "20000", "", "", "1"), 1)
	b.want("B was let in", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 2)
	b.wantLease("lock:a", 20_000)
	b.want("again, and X waits", b.run("turn", "A", "20000", "900", "903", "1"), -900)
	b.want("A goes", b.run("release", "A"), 1)
	b.wantLease("lock:a", 3000)
	b.want("B goes", b.run("release", "B"), 1)
	b.want("X alone", b.do("GET", "lock:a"), "X")
	b.do("FLUSHALL")
	b.acquire("A", "")
	b.do("LPUSH", b.keys.Readers, "somebody else's")
	b.want("A shares all the same", b.run("turn", "A", "20000", "", "", "1"), 1)
	b.want("A is a reader", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 1)
}

func (b *bench) testWaitingForSharers() {
	b.share("A", "", 10_000)
	b.share("B", "", 10_000)
	b.want("nobody waits", b.run("turn", "A", "10000", "500", "503", "1"), 500)
	b.acquire("X", "0")
	b.want("X waits", b.run("turn", "A", "10000", "600", "603", "1"), -600)
	b.want("not asked", b.run("turn", "A", "10000", "", "", "1"), 1)
	b.want("A leaves", b.run("release", "A"), 1)
	b.want("A is gone", b.run("turn", "A", "10000", "700", "703", "1"), 0)
	b.want("X waits for B", b.run("turn", "B", "10000", "700", "703", "1"), -700)
	b.want("B leaves", b.run("release", "B"), 1)
	b.want("X alone", b.do("GET", "lock:a"), "X")
	b.share("C", "0", 10_000)
	b.want("C waits", b.run("turn", "X", "10000", "800", "803", ""), -800)
	b.want("X steps down, C is let in", b.run("turn", "X", "10000", "900", "903", "1"), 900)
	b.want("readers", b.do("ZCOUNT", b.keys.Readers, "-inf", "+inf"), 2)
}

// A renewal that was sent before the downgrade and comes after it finds the lock shared, not lost.
func (b *bench) testOvertakenRenewal() {
	b.acquire("A", "")
	b.run("turn", "A", "10000", "", "", "1")
	b.want("renew", b.do("EVALSHA", b.loaded["renew"], "1", "lock:a", "A", "60000"), "s")
	b.want("turn", b.run("turn", "A", "60000", "", "", ""), 1)
	b.want("it shares", b.do("GET", "lock:a"), "holdfast:shared")
	b.wantLease("lock:a", 60_000)
	b.want("another's", b.run("turn", "B", "60000", "", "", ""), 0)
}

// A batch of those who share renews each that does, and a key of another type spoils none.
func (b *bench) testKeep() {
	keys := func(locks ...string) (keys []string) {
		for _, lock := range locks {
			keys = append(keys, lock, protocol.KeysOf(lock).Readers)
		}
		return keys
	}
	acquire := func(lock, owner string, more ...string) {
		k := protocol.KeysOf(lock)
		b.do(append([]string{"EVALSHA", b.loaded["acquire"], "5", k.Lock, k.Queue, k.Waiters,
			k.Fence, k.Readers, owner, "10000", "1", "1", "3000", "", "", ""}, more...)...)
	}
	acquire("l1", "A", "1")
	acquire("l1", "B", "1")
	acquire("l2", "A")
	acquire("l3", "A", "1")
	acquire("l4", "A", "1")
	b.do("DEL", protocol.KeysOf("l4").Readers)
	b.do("LPUSH", protocol.KeysOf("l4").Readers, "x")
	b.do("LPUSH", "l5", "x")
	acquire("l6", "A", "1")
	args := append([]string{"EVALSHA", b.loaded["keep"], "14"},
		keys("l1", "l2", "l3", "l4", "l5", "l6", "none")...)
	for _, owner := range []string{"B", "A", "B", "A", "A", "A", "A"} {
		args = append(args, owner, "60000")
	}
	reply := b.do(args...).([]any)
	if len(reply) != 3 || reply[0] != "1a0??10" || !strings.HasPrefix(reply[1].(string),
		"WRONGTYPE") || !strings.HasPrefix(reply[2].(string), "WRONGTYPE") {
		b.Fatalf("keep: %v", reply)
	}
	b.wantLease("l1", 60_000)
	b.wantLease("l2", 10_000)
	b.wantLease("l3", 10_000)
	b.wantLease("l6", 60_000)
}

// One who shares does not get the lock alone, and does not wait for itself.
func (b *bench) testNoUpgrade() {
	b.share("A", "", 10_000)
	b.wantBusy("A alone", b.acquire("A", "0"), "A", 0)
	b.want("nobody waits", b.do("EXISTS", b.keys.Queue), 0)
	b.want("A shares", b.run("turn", "A", "10000", "", "", ""), 1)
}

// A server that has no memory left refuses new readers, but those that are there go on and leave.
func (b *bench) testOutOfMemory() {
	b.share("A", "", 10_000)
	b.share("B", "", 10_000)
	b.do("CONFIG", "SET", "maxmemory", "1")
	defer b.do("CONFIG", "SET", "maxmemory", "0")
	first := func(owner string) (any, error) {
		return b.try("EVALSHA", b.loaded["acquire"], "5", b.keys.Lock, b.keys.Queue,
			b.keys.Waiters, b.keys.Fence, b.keys.Readers, owner, "10000", "100", "103", "3000", "",
			"", "", "1")
	}
	if reply, err := first("C"); err == nil || !strings.Contains(err.Error(), "OOM") {
		b.Fatalf("C: %v, %v", reply, err)
	}
	b.want("renew", b.run("turn", "A", "30000", "", "", "1"), 1)
	b.wantLease("lock:a", 30_000)
	b.want("renew", b.do("EVALSHA", b.loaded["keep"], "2", "lock:a", b.keys.Readers, "A", "40000"),
		"1")
	b.wantLease("lock:a", 40_000)
	b.want("release", b.run("release", "A"), 1)
	b.wantLease("lock:a", 10_000)
	b.want("the last", b.run("release", "B"), 1)
	if reply, err := first("D"); err == nil || !strings.Contains(err.Error(), "OOM") {
		b.Fatalf("D, on a free lock: %v, %v", reply, err)
	}
	b.wantOnly(b.keys.Fence)
}

func (b *bench) testInspectShared() {
	b.share("A", "", 10_000)
	b.share("B", "", 5000)
	b.acquire("X", "0")
	got := b.do("EVALSHA", b.loaded["inspect"], "4", b.keys.Lock, b.keys.Queue, b.keys.Waiters,
		b.keys.Readers).([]any)
	sharers := got[0].([]any)
	if len(got) != 4 || len(sharers) != 4 || sharers[0] != "A" || sharers[2] != "B" ||
		sharers[1].(int64) <= 6000 || sharers[3].(int64) > 5000+setBack || got[2] != "X" {
		b.Fatalf("inspect: %v", got)
	}
}

// What an exclusive claim sends does not depend on readers, and is one round trip each.
func TestExclusivePairSendsWhatItSentBefore(t *testing.T) {
	f := &fake{answer: func(c protocol.Command) protocol.Reply {
		switch c[0] {
		case "SET":
			return protocol.Reply{Kind: protocol.String, Str: "OK"}
		case "ZADD":
			return protocol.Reply{Kind: protocol.Integer, Int: 2}
		case "GETRANGE":
			return protocol.Reply{Kind: protocol.String, Str: "o"}
		case "EVALSHA":
			if scriptName(c[1]) == "renew" {
				return protocol.Reply{Kind: protocol.String, Str: "1"}
			}
		}
		return protocol.Reply{Kind: protocol.Integer, Int: int64(len(c[0]) / 7)} // EVALSHA: 1
	}}
	b := protocol.New(f, protocol.Options{})
	c := claim()
	if r, err := b.Acquire(t.Context(), c); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire = %+v, %v", r, err)
	}
	renewal := c
	renewal.Block = 0
	if r, err := b.Renew(t.Context(), []driver.Claim{renewal}); err != nil ||
		r[0].State != driver.Held {
		t.Fatalf("Renew = %+v, %v", r, err)
	}
	if r, err := b.Release(t.Context(), c); err != nil || r.State != driver.Held {
		t.Fatalf("Release = %+v, %v", r, err)
	}
	keys := protocol.KeysOf("k")
	want := []protocol.Command{
		{"SET", "k", "o", "NX", "PX", "1000"},
		{"EXISTS", keys.Queue},
		{"ZADD", keys.Fence, "GT", "CH", "100", "t", "103", "t"},
		{"GETRANGE", "k", "0", "1024"},
		{"EVALSHA", shaOf("renew"), "1", "k", "o", "1000"},
		{"EVALSHA", shaOf("release"), "5", "k", keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			"o"},
	}
	if !slices.EqualFunc(f.sent, want, slices.Equal[protocol.Command]) {
		t.Errorf("sent %q\nwant %q", f.sent, want)
	}
	if f.batches != 3 {
		t.Errorf("%d round trips", f.batches)
	}
}

func shaOf(name string) string {
	for _, script := range protocol.Scripts() {
		if script.Name == name {
			return script.SHA
		}
	}
	return ""
}

// A shared claim is one round trip, over any transport.
func TestSharedClaimIsOneRoundTrip(t *testing.T) {
	for _, unordered := range []bool{false, true} {
		f := &fake{unordered: unordered, answer: func(protocol.Command) protocol.Reply {
			return protocol.Reply{Kind: protocol.Integer, Int: 100}
		}}
		b := protocol.New(f, protocol.Options{})
		c := claim()
		c.Shared = true
		r, err := b.Acquire(t.Context(), c)
		if err != nil || r.State != driver.Held || r.Token != 100 || len(f.sent) != 1 {
			t.Errorf("unordered %v: Acquire = %+v, %v: %q", unordered, r, err, f.sent)
		}
	}
}

// One call renews claims of both kinds, one that has come to share since it was sent, and one that
// is to share from now on. Those that go on as they are take one round trip.
func TestRenewMixesBothKinds(t *testing.T) {
	state := func(text string) protocol.Reply {
		return protocol.Reply{Kind: protocol.String, Str: text}
	}
	f := &fake{}
	f.answer = func(c protocol.Command) protocol.Reply {
		command := strings.Join(c[2:], " ")
		replies := map[string]protocol.Reply{
			"4 k1 k2 k3 k6 a 1000 lost 1000 overtaken 7000 b 1000": state("10s1"),

			"no more 1000 alone 9000": state("10a"),

			"overtaken 7000": state("1"),
		}
		if strings.HasSuffix(command, "alone 9000   1") {
			return protocol.Reply{Kind: protocol.Integer, Int: 1}
		}
		for suffix, reply := range replies {
			if strings.HasSuffix(command, suffix) {
				return reply
			}
		}
		return protocol.Reply{Kind: protocol.Failure, Str: "ERR unexpected " + command}
	}
	b := protocol.New(f, protocol.Options{})
	claims := []driver.Claim{
		{Key: "k1", Owner: "a", TTL: time.Second},
		{Key: "k2", Owner: "lost", TTL: time.Second},
		{Key: "k3", Owner: "overtaken", TTL: 7 * time.Second},
		{Key: "k4", Owner: "shares", TTL: time.Second, Shared: true},
		{Key: "k5", Owner: "no more", TTL: time.Second, Shared: true},
		{Key: "k6", Owner: "b", TTL: time.Second},
		{Key: "k7", Owner: "alone", TTL: 9 * time.Second, Shared: true},
	}
	results, err := b.Renew(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []driver.State{driver.Held, driver.Lost, driver.Held, driver.Held,
		driver.Lost, driver.Held, driver.Held} {
		if results[i].State != want {
			t.Errorf("%s: %+v, want %v", claims[i].Owner, results[i], want)
		}
	}
	var scripts []string
	for _, c := range f.sent {
		scripts = append(scripts, scriptName(c[1]))
	}
	if want := []string{"renew", "keep", "keep", "turn"}; !slices.Equal(scripts, want) ||
		f.batches != 3 {
		t.Errorf("ran %q in %d round trips, want %q", scripts, f.batches, want)
	}
}

// A writer whose presence has ended comes back to a lock that is free, and that readers wait for
// before it: they are let in, and the writer queues behind them.
func TestWriterThatIsLateStaysBehindReaders(t *testing.T) {
	b := newBench(t, still(t))
	b.acquire("W", "")
	b.wantBusy("A", b.share("A", "0", 10_000), "W", 1)
	late := func() any {
		return b.run("acquire", "X", "10000", "100", "103", dead, "0", "Pchannel", "")
	}
	b.wantBusy("X, present for no time", late(), "W", 2)
	b.do("DEL", "lock:a")
	b.wantBusy("X, late", late(), "A", 1)
	b.want("the lock", b.do("GET", "lock:a"), "holdfast:shared")
	b.want("A renews", b.run("turn", "A", "10000", "", "", "", "1"), 1)
}

// A reader with an early ticket comes to a lock that is free, with writers in the queue: the first
// of them gets it, and the reader queues.
func TestEarlyReaderTakesNothingFromAWriter(t *testing.T) {
	b := newBench(t, still(t))
	b.acquire("W", "")
	b.wantBusy("X", b.acquire("X", "10"), "W", 1)
	b.wantBusy("Y", b.acquire("Y", "20"), "W", 2)
	b.do("DEL", "lock:a")
	b.wantBusy("S", b.share("S", "5", 10_000), "X", 1)
	b.want("the lock", b.do("GET", "lock:a"), "X")
}
