package protocol_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// bench is a server on which scripts are run one by one, without a Backend.
type bench struct {
	*testing.T
	server *redistest.Server
	client *redistest.Client
	keys   protocol.Keys
	loaded map[string]string // SHA by name
}

func newBench(t *testing.T, server *redistest.Server) *bench {
	client, err := server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b := &bench{T: t, server: server, client: client, keys: protocol.KeysOf("lock:a"),
		loaded: make(map[string]string)}
	b.do("FLUSHALL")
	for _, script := range protocol.Scripts() {
		if sha := b.do("SCRIPT", "LOAD", script.Source); sha != script.SHA {
			t.Fatalf("the server knows %s as %v, not as %s", script.Name, sha, script.SHA)
		}
		b.loaded[script.Name] = script.SHA
	}
	return b
}

func (b *bench) try(args ...string) (any, error) { return b.client.Try(args...) }

func (b *bench) do(args ...string) any {
	b.Helper()
	reply, err := b.try(args...)
	if err != nil {
		b.Fatalf("%q: %v", args, err)
	}
	return reply
}

// run runs a script on all keys of the lock.
func (b *bench) run(name string, args ...string) any {
	b.Helper()
	k := b.keys
	return b.do(append([]string{"EVALSHA", b.loaded[name], "5", k.Lock, k.Queue, k.Waiters,
		k.Fence, k.Readers}, args...)...)
}

// acquire runs acquire.lua for an owner with tokens from 100.
func (b *bench) acquire(owner, ticket string) any {
	b.Helper()
	return b.run("acquire", owner, "10000", "100", "103", "3000", ticket, "Pchannel", "")
}

func (b *bench) want(what string, got, want any) {
	b.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (b *bench) wantBusy(what string, got any, holder string, place int64) {
	b.Helper()
	list, ok := got.([]any)
	if !ok || len(list) != 4 || list[0] != holder || list[2] != place {
		b.Fatalf("%s: got %v, want busy, held by %s, place %d", what, got, holder, place)
	}
	if left := list[1].(int64); left <= 0 || left > 10000+setBack {
		b.Fatalf("%s: lease of %d ms", what, left)
	}
}

// wantOnly checks which keys there are.
func (b *bench) wantOnly(keys ...string) {
	b.Helper()
	var got []string
	for _, key := range b.do("KEYS", "*").([]any) {
		got = append(got, key.(string))
	}
	slices.Sort(got)
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		b.Fatalf("keys %q are left, want %q", got, keys)
	}
}

// What a script includes is part of it, and the names of its keys and arguments are at its head.
func TestScriptsAreComplete(t *testing.T) {
	for _, script := range protocol.Scripts() {
		if strings.Contains(script.Source, "include") ||
			!strings.Contains(script.Source, "\n-- KEYS  ") {
			t.Errorf("%s:\n%s", script.Name, script.Source)
		}
	}
}

// still starts a server whose clock stands still: a busy machine may take seconds between two
// commands.
func still(t *testing.T) *redistest.Server {
	t.Helper()
	clock := redistest.NewClock(t)
	clock.Stop(t)
	return redistest.Start(t, redistest.WithClock(clock))
}

// setBack is by how many milliseconds the clock of [still] may go back between two commands: Valkey
// from 9.1 on reads it once in a millisecond, and in between adds the time by another clock.
const setBack = 1

// dead is the presence of a waiter that has died, however the clock goes.
const dead = "-10"

func TestScripts(t *testing.T) {
	server := still(t)
	for name, f := range map[string]func(*bench){
		"AcquireAndRelease":    (*bench).testAcquireAndRelease,
		"R5_PublishedLayout":   (*bench).testPublishedLayout,
		"Queue":                (*bench).testQueue,
		"ArrivalOrder":         (*bench).testArrivalOrder,
		"SameMicrosecond":      (*bench).testSameMicrosecond,
		"ClockIsTold":          (*bench).testClockIsTold,
		"TheDeadQueueAnew":     (*bench).testTheDeadQueueAnew,
		"HandoffTellsTheHeir":  (*bench).testHandoffTellsTheHeir,
		"NoticeIsNeverFatal":   (*bench).testNoticeIsNeverFatal,
		"MissingNote":          (*bench).testMissingNote,
		"TokensAreExact":       (*bench).testTokensAreExact,
		"FenceOverlap":         (*bench).testFenceOverlap,
		"Renew":                (*bench).testRenew,
		"RenewSparesTheOthers": (*bench).testRenewSparesTheOthers,
		"Turn":                 (*bench).testTurn,
		"Inspect":              (*bench).testInspect,
		"ForeignKey":           (*bench).testForeignKey,
		"NothingIsLeftBehind":  (*bench).testNothingIsLeftBehind,
		"ForeignLockIsWaited":  (*bench).testForeignLock,
	} {
		t.Run(name, func(t *testing.T) { f(newBench(t, server)) })
	}
}

// The keys of the queue outlive the last waiter by seconds, and all that wait, however many they
// are: their order stays.
func TestQueueOutlastsItsKeysTTL(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	clock.Stop(t)
	b := newBench(t, redistest.Start(t, redistest.WithClock(clock)))
	const long = "100000"
	b.run("acquire", "A", long, "100", "103", "3000", "", "Pchannel", "")
	wait := func(owner string) any {
		return b.run("acquire", owner, long, "100", "103", "3000", "0", "Pchannel", "").([]any)[2]
	}
	second := func() any { return b.do("TIME").([]any)[0] }
	b.want("B", wait("B"), 1)
	for range 30 {
		b.want("C", wait("C"), 2)
		b.want("B again", wait("B"), 1)
		before := second()
		clock.Step(t, time.Second)
		testserver.Eventually(t, "the server has read its clock", func() error {
			return testserver.Not(second() != before, "second %s", before)
		})
	}
	b.want("C leaves", b.run("release", "C"), 2)
	b.want("B leaves", b.run("release", "B"), 2)
}

// The order of arrival is the server's, also when its clock is set back, or when tickets from
// elsewhere are ahead of it.
func (b *bench) testArrivalOrder() {
	b.acquire("A", "")
	b.wantBusy("B", b.acquire("B", "0"), "A", 1)
	b.do("ZADD", b.keys.Queue, "4000000000000000", ">B") // as if the clock had been ahead
	b.wantBusy("C", b.acquire("C", "0"), "A", 2)
	b.wantBusy("D", b.acquire("D", "0"), "A", 3)
	b.wantBusy("B again", b.acquire("B", "0"), "A", 1)
	b.wantBusy("C again", b.acquire("C", "0"), "A", 2)
	b.want("C's ticket", b.do("ZSCORE", b.keys.Queue, ">C"), "4000000000000001")
}

// Of two waiters in the same microsecond, the second comes after the first, whatever the owner
// values are.
func (b *bench) testSameMicrosecond() {
	b.acquire("A", "")
	for ahead := range int64(50) {
		b.wantBusy("Z", b.acquire("Z", "0"), "A", 1)
		clock := b.do("TIME").([]any)
		seconds, _ := strconv.ParseInt(clock[0].(string), 10, 64)
		micros, _ := strconv.ParseInt(clock[1].(string), 10, 64)
		b.do("ZADD", b.keys.Queue, strconv.FormatInt(seconds*1e6+micros+ahead, 10), ">Z")
		b.wantBusy("C", b.acquire("C", "0"), "A", 2)
		b.want("Z leaves", b.run("release", "Z"), 2)
		b.want("C leaves", b.run("release", "C"), 2)
	}
}

// A waiter is told what the server's clock shows, which tickets are taken from.
func (b *bench) testClockIsTold() {
	b.acquire("A", "")
	reply := b.acquire("B", "0").([]any)
	if ticket := b.do("ZSCORE", b.keys.Queue, ">B"); fmt.Sprint(reply[3]) != ticket {
		b.Fatalf("the clock shows %v, and the ticket is %v", reply[3], ticket)
	}
	if reply := b.acquire("C", "").([]any); reply[3] != int64(0) {
		b.Fatalf("who is not queued is told the clock: %v", reply)
	}
}

func (b *bench) testAcquireAndRelease() {
	b.want("acquire", b.acquire("A", ""), 100)
	b.want("again", b.acquire("A", ""), 104)
	b.wantBusy("other", b.acquire("B", ""), "A", 0)
	b.want("release by other", b.run("release", "B"), 0)
	b.want("release", b.run("release", "A"), 1)
	b.want("release again", b.run("release", "A"), 0)
	b.wantOnly(b.keys.Fence)
}

func (b *bench) testPublishedLayout() {
	b.acquire("A", "")
	b.want("type", b.do("TYPE", "lock:a"), "string")
	b.want("value", b.do("GET", "lock:a"), "A")
	if left := b.do("PTTL", "lock:a").(int64); left <= 0 || left > 10000+setBack {
		b.Fatalf("lease of %d ms", left)
	}
	b.want("the fence does not expire", b.do("PTTL", b.keys.Fence), -1)
	b.want("a client of another library", b.do("SET", "lock:a", "X", "NX", "PX", "1000"), nil)
}

func (b *bench) testQueue() {
	b.acquire("A", "")
	b.wantBusy("B", b.acquire("B", "0"), "A", 1)
	b.wantBusy("C", b.acquire("C", "0"), "A", 2)
	b.wantBusy("B again", b.acquire("B", "0"), "A", 1)
	b.wantBusy("D, with the smallest ticket", b.acquire("D", "1"), "A", 1)
	b.wantBusy("C, without asking to queue, stays", b.acquire("C", ""), "A", 3)
	b.wantBusy("E, without queueing", b.acquire("E", ""), "A", 0)
	for _, key := range []string{b.keys.Queue, b.keys.Waiters} {
		if left := b.do("PTTL", key).(int64); left <= 19000 || left > 20000+setBack {
			b.Fatalf("%s ends in %d ms", key, left)
		}
	}
	b.want("B leaves", b.run("release", "B"), 2)
	b.want("A releases", b.run("release", "A"), 1)
	b.want("D has it", b.do("GET", "lock:a"), "D")
	if left := b.do("PTTL", "lock:a").(int64); left <= 0 || left > 3000+setBack {
		b.Fatalf("D has it for %d ms: not what remains of its presence", left)
	}
	b.want("D confirms", b.acquire("D", "0"), 108)
	b.want("D releases", b.run("release", "D"), 1)
	b.want("C has it", b.do("GET", "lock:a"), "C")
	b.wantOnly("lock:a", b.keys.Fence)
}

func (b *bench) testTheDeadQueueAnew() {
	b.acquire("A", "")
	late := func(owner, ticket string) any {
		return b.run("acquire", owner, "10000", "100", "103", dead, ticket, "Pchannel", "")
	}
	b.wantBusy("B, present for no time", late("B", "0"), "A", 1)
	b.wantBusy("B, alone, and not asking to queue", late("B", ""), "A", 1)
	b.wantBusy("C, as B is dead", b.acquire("C", "0"), "A", 1)
	b.wantBusy("B again", b.acquire("B", "0"), "A", 2)
	b.wantBusy("D, present for no time", late("D", "0"), "A", 3)
	b.wantBusy("E, as D is dead", b.acquire("E", "0"), "A", 3)
	b.wantBusy("D once more", late("D", "0"), "A", 4)
	b.wantBusy("D itself finds that it was dead", b.acquire("D", ""), "A", 4)
	b.want("A releases", b.run("release", "A"), 1)
	b.want("C has it", b.do("GET", "lock:a"), "C")
}

func (b *bench) testHandoffTellsTheHeir() {
	listener, err := b.server.Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	if _, err := listener.Try("SUBSCRIBE", "channel"); err != nil {
		b.Fatal(err)
	}
	b.acquire("A", "")
	b.acquire("an owner/with spaces", "0")
	b.run("release", "A")
	message, err := listener.Read()
	if err != nil {
		b.Fatal(err)
	}
	b.want("message", message, []any{"message", "channel", "104 4 20 an owner/with spaceslock:a"})
}

func (b *bench) testNoticeIsNeverFatal() {
	b.acquire("A", "")
	b.run("acquire", "B", "10000", "100", "100", "3000", "0", "Sno sharded channel of this slot",
		"")
	b.want("release", b.run("release", "A"), 1)
	b.want("B has it", b.do("GET", "lock:a"), "B")
}

func (b *bench) testMissingNote() {
	b.acquire("A", "")
	b.acquire("B", "0")
	b.acquire("C", "0")
	b.do("HDEL", b.keys.Waiters, "B")
	b.want("release", b.run("release", "A"), 1)
	b.want("C has it", b.do("GET", "lock:a"), "C")
	b.wantOnly("lock:a", b.keys.Fence)
}

// Numbers in Lua are floating point: exact below 2^53.
func (b *bench) testTokensAreExact() {
	const top int64 = 1<<53 - 1
	acquire := func(owner string, first, last int64) any {
		return b.run("acquire", owner, "10000", strconv.FormatInt(first, 10),
			strconv.FormatInt(last, 10), "3000", "0", "", "")
	}
	b.want("first", acquire("A", top-100, top-91), top-100)
	b.want("again, from the fence", acquire("A", 5, 14), top-90)
	b.acquire("B", "0")
	b.want("turn", b.run("turn", "A", "10000", "7", "7", ""), -(top - 80))
	b.want("turn with a larger one", b.run("turn", "A", "10000", strconv.FormatInt(top-50, 10),
		strconv.FormatInt(top-41, 10), ""), -(top - 50))
	b.run("release", "A")
	b.want("the fence", b.do("ZSCORE", b.keys.Fence, "t"), strconv.FormatInt(top-37, 10))
	b.want("the heir's next", acquire("B", 1, 1), top-36)
}

func (b *bench) testFenceOverlap() {
	// The fence is inside the block that is asked for: nothing of it may be granted.
	b.do("ZADD", b.keys.Fence, "150", "t")
	got := b.run("acquire", "A", "10000", "100", "199", "3000", "", "", "").(int64)
	if got <= 150 {
		b.Fatalf("token %d over a fence of 150", got)
	}
	b.want("the fence", b.do("ZSCORE", b.keys.Fence, "t"), strconv.FormatInt(got+99, 10))
	b.run("release", "A")
	// Just below the fence, and exactly on it.
	for _, first := range []int64{got + 98, got + 99, got + 100} {
		before, _ := strconv.ParseInt(b.do("ZSCORE", b.keys.Fence, "t").(string), 10, 64)
		token := b.run("acquire", "A", "10000", fmt.Sprint(first), fmt.Sprint(first), "3000", "",
			"", "").(int64)
		if token <= before {
			b.Fatalf("token %d over a fence of %d", token, before)
		}
		b.run("release", "A")
	}
}

func (b *bench) testRenew() {
	b.do("SET", "l1", "A", "PX", "1000")
	b.do("SET", "l2", "B", "PX", "1000")
	b.want("renew", b.do("EVALSHA", b.loaded["renew"], "4", "l1", "l2", "l3", "l1", "A", "60000",
		"A", "60000", "A", "60000", "A", "50000"), "1001")
	if left := b.do("PTTL", "l1").(int64); left <= 1000 || left > 50000+setBack {
		b.Fatalf("l1 for %d ms", left)
	}
	if left := b.do("PTTL", "l2").(int64); left > 1000+setBack {
		b.Fatalf("l2 for %d ms", left)
	}
	b.wantOnly("l1", "l2")
}

func (b *bench) testRenewSparesTheOthers() {
	b.do("SET", "l1", "A", "PX", "1000")
	b.do("LPUSH", "list", "x")
	b.do("SET", "l2", "A", "PX", "1000")
	reply := b.do("EVALSHA", b.loaded["renew"], "3", "l1", "list", "l2", "A", "60000", "A", "60000",
		"A", "60000").([]any)
	if len(reply) != 2 || reply[0] != "1?1" || !strings.HasPrefix(reply[1].(string), "WRONGTYPE") {
		b.Fatalf("renew: %v", reply)
	}
	if left := b.do("PTTL", "l2").(int64); left <= 1000 {
		b.Fatalf("l2 was not renewed")
	}
}

func (b *bench) testTurn() {
	b.want("of nothing", b.run("turn", "A", "10000", "", "", ""), 0)
	b.acquire("A", "")
	b.want("of another's", b.run("turn", "B", "10000", "500", "500", ""), 0)
	b.want("without tokens", b.run("turn", "A", "10000", "", "", ""), 1)
	b.want("tokens", b.run("turn", "A", "10000", "500", "509", ""), 500)
	b.acquire("B", "0")
	b.want("B waits", b.run("turn", "A", "10000", "500", "509", ""), -510)
	b.want("not asked", b.run("turn", "A", "10000", "", "", ""), 1)
	b.want("A has it", b.do("GET", "lock:a"), "A")
	b.want("B leaves", b.run("release", "B"), 2)
	b.run("acquire", "D", "10000", "100", "103", dead, "0", "", "")
	b.want("nobody lives", b.run("turn", "A", "10000", "900", "900", ""), 900)
	b.acquire("B", "0")
	b.want("B waits behind the dead", b.run("turn", "A", "10000", "901", "901", ""), -901)
	b.want("A leaves", b.run("release", "A"), 1)
	b.want("B has it", b.do("GET", "lock:a"), "B")
}

func (b *bench) testInspect() {
	inspect := func() []any {
		return b.do("EVALSHA", b.loaded["inspect"], "4", b.keys.Lock, b.keys.Queue,
			b.keys.Waiters, b.keys.Readers).([]any)
	}
	b.want("nothing", inspect(), []any{nil, -2})
	b.acquire("A", "")
	b.acquire("B", "20")
	b.acquire("C", "10")
	got := inspect()
	if len(got) != 6 || got[0] != "A" || got[2] != "C" || got[4] != "B" ||
		got[3].(int64) > 3000+setBack || got[5].(int64) <= 0 {
		b.Fatalf("inspect: %v", got)
	}
	b.do("DEL", b.keys.Lock)
	b.do("HSET", b.keys.Lock, "id:1", strings.Repeat("3", 2000))
	b.want("a hash", inspect(), []any{[]any{"id:1", strings.Repeat("3", 1025)}, -1})
}

func (b *bench) testForeignKey() {
	b.do("LPUSH", "lock:a", "x")
	for _, name := range []string{"acquire", "release"} {
		_, err := b.try("EVALSHA", b.loaded[name], "5", b.keys.Lock, b.keys.Queue,
			b.keys.Waiters, b.keys.Fence, b.keys.Readers,
			"A", "10000", "1", "1", "3000", "0", "", "")
		if err == nil || !strings.HasPrefix(err.Error(), "NOTALOCK WRONGTYPE") {
			b.Fatalf("%s: %v", name, err)
		}
	}
	b.wantOnly("lock:a")
}

// A foreign client's lock has no waiters of its own, and when it is deleted nobody is told.
func (b *bench) testForeignLock() {
	b.do("SET", "lock:a", "foreign", "NX", "PX", "10000")
	b.wantBusy("B", b.acquire("B", "0"), "foreign", 1)
	b.wantBusy("C", b.acquire("C", "0"), "foreign", 2)
	b.do("DEL", "lock:a")
	b.wantBusy("C comes too early", b.acquire("C", "0"), "B", 1)
	b.want("B has it", b.acquire("B", "0"), 104)
}

// Random use leaves nothing but the fence, whatever the order.
func (b *bench) testNothingIsLeftBehind() {
	seed := rand.Uint64()
	b.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	owners := []string{"A", "B", "C", "D"}
	for range 500 {
		owner := owners[random.IntN(len(owners))]
		switch random.IntN(6) {
		case 0, 1, 2:
			b.acquire(owner, []string{"", "0", "7"}[random.IntN(3)])
		case 3:
			b.run("release", owner)
		case 4:
			b.run("turn", owner, "10000", "100", "103", "")
		case 5:
			b.do("DEL", "lock:a") // lost
		}
	}
	for range owners { // each release may hand over to another
		for _, owner := range owners {
			b.run("release", owner)
		}
	}
	b.wantOnly(b.keys.Fence)
}

// The commands that acquire without a script are not one step. Whatever comes between them, of any
// two acquisitions that completed, the one that started later has the larger token, and no two have
// the same token.
func TestR38_TokensRiseBetweenPlainCommands(t *testing.T) {
	server := still(t)
	b := newBench(t, server)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const workers, rounds = 6, 300
	type grant struct{ started, completed, first, last int64 }
	var mu sync.Mutex
	var clock int64
	tick := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		clock++
		return clock
	}
	var grants []grant
	var done sync.WaitGroup
	for i := range workers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		client, err := server.Dial()
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			defer client.Close()
			try := func(args ...string) any {
				reply, err := client.Try(args...)
				if err != nil {
					t.Errorf("%q: %v", args, err)
				}
				return reply
			}
			for round := range rounds {
				owner := fmt.Sprint(i, "/", round)
				first := random.Int64N(2000) + 1 // clocks that do not agree at all
				last := first + random.Int64N(20)
				g := grant{started: tick()}
				// One by one, and the lock may be lost at any moment: see the last case.
				set := try("SET", b.keys.Lock, owner, "NX", "PX", "10000") != nil
				raised := try("ZADD", b.keys.Fence, "GT", "CH", fmt.Sprint(first), "t",
					fmt.Sprint(last), "t")
				switch {
				case set && (raised == int64(2) || raised == int64(1) && first == last):
					g.first, g.last = first, last
				default:
					reply := try("EVALSHA", b.loaded["acquire"], "5", b.keys.Lock, b.keys.Queue,
						b.keys.Waiters, b.keys.Fence, b.keys.Readers,
						owner, "10000", fmt.Sprint(first), fmt.Sprint(last), "3000", "", "", "")
					token, ok := reply.(int64)
					if !ok {
						continue
					}
					g.first, g.last = token, token+last-first
				}
				// It counts only if the lock is still the owner's after the tokens were drawn, as
				// the kernel makes sure of by its clock.
				if try("GET", b.keys.Lock) == owner {
					g.completed = tick()
					mu.Lock()
					grants = append(grants, g)
					mu.Unlock()
				}
				if random.IntN(3) == 0 {
					try("DEL", b.keys.Lock) // the lease of whoever has it now is over
				} else {
					try("EVALSHA", b.loaded["release"], "5", b.keys.Lock, b.keys.Queue,
						b.keys.Waiters, b.keys.Fence, b.keys.Readers, owner)
				}
			}
		})
	}
	done.Wait()
	if len(grants) < rounds/10 {
		t.Fatalf("only %d acquisitions completed", len(grants))
	}
	for i, a := range grants {
		for _, c := range grants[i+1:] {
			if a.first <= c.last && c.first <= a.last {
				t.Fatalf("tokens are shared: %+v and %+v", a, c)
			}
			if a.completed < c.started && c.first <= a.last || c.completed < a.started &&
				a.first <= c.last {
				t.Fatalf("tokens go back: %+v and %+v", a, c)
			}
		}
	}
}
