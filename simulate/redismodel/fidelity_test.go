package redismodel_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// both is a real server and a model, which get the same commands.
type both struct {
	*testing.T
	real   *redistest.Client
	model  *redismodel.Server
	random *rand.Rand
	log    []string // what was sent since both were empty
	seen   map[string]int
}

// TestSameAsRedis sends random sequences of the protocol's scripts and commands, and of foreign
// ones, to a real server and to the model. All replies must be the same, and the resulting keys,
// too. Times are long and compared roughly.
func TestSameAsRedis(t *testing.T) {
	client, err := redistest.Start(t).Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := &both{
		T: t, real: client, model: redismodel.New(redismodel.Options{}),
		random: rand.New(rand.NewPCG(seed, 0)),
		seen:   make(map[string]int),
	}
	for range 30 {
		b.log = nil
		b.send("FLUSHALL")
		for _, script := range protocol.Scripts() {
			b.send("SCRIPT", "LOAD", script.Source)
		}
		b.log = nil
		for range 15 {
			for range 12 {
				b.send(b.command()...)
			}
			b.compareKeys()
		}
	}
	// Sequences that only fail would show nothing.
	for _, kind := range []string{"granted", "busy", "released", "left the queue", "renewed",
		"waited for", "shared", "failed", "wrong type"} {
		if b.seen[kind] < 5 {
			t.Errorf("seen %d times: %s", b.seen[kind], kind)
		}
	}
	t.Logf("seen: %v", b.seen)
}

// send sends a command to both, and compares the replies.
func (b *both) send(args ...string) {
	b.Helper()
	b.log = append(b.log, fmt.Sprintf("%.60q", args))
	reply, err := b.real.Try(args...)
	if err != nil {
		failed, ok := err.(redistest.ReplyError)
		if !ok {
			b.Fatal(err)
		}
		reply = failed
	}
	other := shape(b.model.Do(args...))
	switch args[0] {
	case "TIME":
		return
	case "TTL": // in seconds, of which some may pass between the two
		reply, other = milliseconds(reply), milliseconds(other)
	}
	want, got := roughly(reply), roughly(other)
	if want != got {
		b.Fatalf("the server answers %s\nand the model   %s\nafter\n%s", want, got, b.last())
	}
	b.count(args, want)
}

// last lists the commands that led here, without those that only looked.
func (b *both) last() string { return strings.Join(b.log[max(0, len(b.log)-50):], "\n") }

// count counts the kinds of replies.
func (b *both) count(args []string, reply string) {
	switch {
	case strings.Contains(reply, "WRONGTYPE"):
		b.seen["wrong type"]++
	case strings.HasPrefix(reply, "error"):
		b.seen["failed"]++
	}
	if args[0] != "EVALSHA" {
		return
	}
	for _, script := range protocol.Scripts() {
		if script.SHA != args[1] {
			continue
		}
		switch {
		case script.Name == "acquire" && strings.HasPrefix(reply, "["):
			b.seen["busy"]++
		case script.Name == "acquire":
			b.seen["granted"]++
		case script.Name == "release" && reply == "1":
			b.seen["released"]++
		case script.Name == "release" && reply == "2":
			b.seen["left the queue"]++
		case script.Name == "turn" && strings.HasPrefix(reply, "-"):
			b.seen["waited for"]++
		case script.Name == "renew" && strings.Contains(reply, "1"):
			b.seen["renewed"]++
		case script.Name == "renew" && strings.Contains(reply, "s"):
			b.seen["shared"]++
		}
	}
}

// shape turns the model's reply into what redistest makes of a server's.
func shape(reply protocol.Reply) any {
	switch reply.Kind {
	case protocol.Integer:
		return reply.Int
	case protocol.String:
		return reply.Str
	case protocol.Failure:
		return redistest.ReplyError(reply.Str)
	case protocol.List:
		list := make([]any, len(reply.List))
		for i := range reply.List {
			list[i] = shape(reply.List[i])
		}
		return list
	}
	return nil
}

// milliseconds returns what PTTL would, if the reply is that of TTL for a key that expires.
func milliseconds(reply any) any {
	if seconds, ok := reply.(int64); ok && seconds > 0 {
		return 1000 * seconds
	}
	return reply
}

var digits = regexp.MustCompile(`\d{13,}`)

// roughly writes a reply with what depends on the moment left out. Tokens are small or near 2^53,
// and TTLs are multiples of 1,000,000 ms, so neither is taken for a time on the clock.
func roughly(reply any) string {
	switch reply := reply.(type) {
	case int64:
		if reply > 10_000 && reply < 1e9 {
			return fmt.Sprintf("ttl %d", (reply+999_999)/1_000_000)
		}
		return roughly(strconv.FormatInt(reply, 10))
	case string:
		return digits.ReplaceAllStringFunc(reply, func(number string) string {
			if n, err := strconv.ParseFloat(number, 64); err == nil && n > 1e12 && n < 5e15 {
				return "time"
			}
			return number
		})
	case redistest.ReplyError:
		failed := protocol.ServerFailure("", string(reply), true)
		return fmt.Sprintf("error, maybe %v, permanent %v: %v", failed.Maybe,
			failed.Permanent, failed.Err)
	case []any:
		texts := make([]string, len(reply))
		for i, item := range reply {
			texts[i] = roughly(item)
		}
		return fmt.Sprintf("%q", texts)
	}
	return "nothing"
}

// compareKeys compares everything that the two have.
func (b *both) compareKeys() {
	b.Helper()
	reply, err := b.real.Try("KEYS", "*")
	if err != nil {
		b.Fatal(err)
	}
	var keys []string
	for _, key := range reply.([]any) {
		keys = append(keys, key.(string))
	}
	slices.Sort(keys)
	if got := shape(b.model.Do("KEYS", "*")); roughly(got) != fmt.Sprintf("%q", keys) {
		b.Fatalf("the server has %q\nand the model   %s\nafter\n%s", keys, roughly(got), b.last())
	}
	for _, key := range keys {
		b.send("TYPE", key)
		b.send("PTTL", key)
		switch shape(b.model.Do("TYPE", key)) {
		case "string":
			b.send("GET", key)
		case "zset":
			b.send("ZRANGEBYSCORE", key, "0", "+inf", "WITHSCORES")
			b.send("ZCOUNT", key, "-inf", "(0")
			for _, owner := range owners {
				b.send("ZSCORE", key, "<"+owner)
				b.send("ZSCORE", key, owner)
			}
		case "hash":
			for _, owner := range owners {
				b.send("HGET", key, owner)
			}
			b.send("HLEN", key)
		}
	}
}

var owners = []string{"A", "B", "an owner/with spaces", "\x00\xff"}

func (b *both) pick(of ...string) string { return of[b.random.IntN(len(of))] }

func (b *both) command() []string {
	keys := protocol.KeysOf(b.pick("lock:a", "lock:a", "lock:{b"))
	if b.random.IntN(4) > 0 {
		return b.script(keys)
	}
	return b.plain(keys)
}

// tokens returns the ends of a block.
func (b *both) tokens() (first, last string) {
	from := b.random.Int64N(300) + 1
	if b.random.IntN(8) == 0 {
		from += 1<<53 - 100_000
	}
	return strconv.FormatInt(from, 10), strconv.FormatInt(from+
		b.random.Int64N(2)*b.random.Int64N(30), 10)
}

// script is a run of one of the protocol's scripts.
func (b *both) script(keys protocol.Keys) []string {
	number := b.random.IntN(len(owners))
	owner := owners[number]
	// Two readers with the same end might be in different orders in the two.
	ttl, presence := fmt.Sprint(1_000_000+2_000_000*number), fmt.Sprint(2_000_000+2_000_000*number)
	shared := b.random.IntN(2) == 0
	first, last := b.tokens()
	scripts := protocol.Scripts()
	script := scripts[b.random.IntN(len(scripts))]
	if b.random.IntN(3) == 0 {
		script = scripts[0] // acquire: the others need a holder
	}
	all := []string{"EVALSHA", script.SHA, "5", keys.Lock, keys.Queue, keys.Waiters, keys.Fence,
		keys.Readers}
	late := fmt.Sprintf("holdfast:d:{%s}:%s", protocol.Tag(keys.Slot), owner)
	if b.random.IntN(6) == 0 {
		all = append(all, late)
		all[2] = "6"
	}
	numbers := []string{b.pick("C", "C", "D"), b.pick("1", "2", "3")}
	if b.random.IntN(2) == 0 {
		numbers = append(numbers, b.pick("1", "2"), "1000000")
	}
	switch script.Name {
	case "acquire":
		all = append(all, owner, ttl, first, last, b.pick("0", presence, presence, presence),
			b.pick("", "0", "0", "7", "3"),
			b.pick("", "Pchannel", "Schannel"))
		if shared {
			all = append(all, "", "1")
		} else {
			all = append(all, b.pick("", "", "1"), "")
		}
		return append(all, numbers...)
	case "release":
		return append(append(all, owner), numbers...)
	case "turn":
		if b.random.IntN(2) == 0 {
			first, last = "", ""
		}
		return append(all[:2],
			append([]string{"5"}, append(all[3:8], owner, ttl, first, last,
				b.pick("", "", "1"))...)...)
	case "renew":
		locks := []string{"lock:a", "lock:{b", "lock:a", "lock:c"}
		return append(append([]string{"EVALSHA", script.SHA, "4"}, locks...),
			owner, ttl, b.pick(owners...), ttl, b.pick(owners...), ttl, owner, ttl)
	case "keep":
		other := protocol.KeysOf("lock:{b")
		return []string{"EVALSHA", script.SHA, "4", keys.Lock, keys.Readers, other.Lock,
			other.Readers, owner, ttl, owner, ttl}
	case "inspect":
		return append([]string{"EVALSHA", script.SHA, "4"}, keys.Lock, keys.Queue, keys.Waiters,
			keys.Readers)
	}
	if script.Name == "belong" {
		return []string{"EVALSHA", script.SHA, "2", "holdfast:s", "holdfast:m:{holdfast:s}",
			b.pick("", "", "a", "b"), b.pick("", "a", "b"), ""}
	}
	b.Fatalf("the protocol has a script %s, which this test does not know", script.Name)
	return nil
}

// plain is a command of the protocol, or a foreign one, with arguments that may be wrong.
func (b *both) plain(keys protocol.Keys) []string {
	owner := b.pick(owners...)
	key := b.pick(keys.Lock, keys.Lock, keys.Queue, keys.Waiters, keys.Readers, keys.Fence, "other")
	// Presences that end in the same millisecond might be in different orders in the two.
	ordered := b.pick(keys.Lock, keys.Fence, "other", "other")
	first, last := b.tokens()
	number := b.pick("0", "1", "-1", "(0", "-inf", "+inf", "7", first, "x", "1.5")
	commands := [][]string{
		{"SET", keys.Lock, owner, "NX", "PX", "1000000"},
		{"SET", keys.Lock, owner, "NX", "PX", "1000000"},
		{"EXISTS", keys.Queue}, {"EXISTS", keys.Lock, keys.Queue, keys.Lock},
		{"ZADD", keys.Fence, "GT", "CH", first, "t", last, "t"},
		{"ZADD", keys.Fence, "GT", "CH", first, "t", last, "t"},
		{"DEL", keys.Lock}, {"DEL", keys.Lock}, {"DEL", key, "other"}, {"DEL", key},
		{"GET", key}, {"STRLEN", key}, {"GETRANGE", key, b.pick("0", "-3", "2", "x"),
			b.pick("-1", "1", "-100", "5")},
		{"PTTL", key}, {"TTL", key}, {"TYPE", key}, {"TIME"}, {"DBSIZE"}, {"PERSIST", "other"},
		{"PEXPIRE", keys.Lock, b.pick("1000000", "3000000", "0", "-1", "x")},
		{"EXPIRE", "other", b.pick("100", "500", "0")},
		{"SET", "other", owner, b.pick("XX", "NX", "GET", "KEEPTTL", "WHAT", "PX")},
		{"SET", "other", owner, b.pick("PX", "EX", "XX"),
			b.pick("400000", "0", "-1", "x", "NX", "GET", "KEEPTTL")},
		{"SET", "other", "7"}, {"INCR", "other"}, {"SETNX", "other", owner},
		{"HSET", "other", owner, "1", b.pick("a", "b"), "2"},
		{"HSET", b.pick("other", "other", keys.Lock), owner, "1"},
		{"HGET", key, owner}, {"HDEL", keys.Waiters, owner, owner}, {"HDEL", "other", owner, "a"},
		{"HLEN", key},
		{"ZADD", "other", b.pick("NX", "XX", "GT", "LT", "CH"), number, owner},
		{"ZADD", "other", b.pick("NX", "XX", "GT", "LT", "CH"),
			b.pick("NX", "XX", "GT", "LT", "CH"), number, owner, "2", "z", "3", "z"},
		{"ZADD", "other", number, owner, number},
		{"ZADD", "other", "CH", b.pick("-inf", "+inf", "1e300", "0.1"), "y"},
		{"ZSCORE", key, owner}, {"ZSCORE", key, "t"}, {"ZREM", "other", owner, "z"},
		{"ZREM", keys.Queue, ">" + owner, "<" + owner},
		{"ZCARD", key}, {"ZRANK", key, "z"}, {"ZREVRANK", key, ">" + owner},
		{"ZCOUNT", key, number, b.pick("5", "(7", "+inf")},
		{"ZRANGEBYSCORE", ordered, number, b.pick("+inf", "(5"), "LIMIT", b.pick("0", "1", "9"),
			b.pick("1", "-1", "0", "x")},
		{"ZRANGEBYSCORE", ordered, "-inf", b.pick("+inf", "(0"), "WITHSCORES"},
		{"ZRANGE", ordered, b.pick("0", "1", "-2"), "-1"},
		{"EVALSHA", strings.Repeat("0", 40), "0"}, {"SCRIPT", "EXISTS", protocol.Scripts()[0].SHA,
			"none"},
		{"WAIT", "0", "1"}, {"NOSUCH", "x"}, {"GET"}, {"PUBLISH", "channel", "x"}, {"PING"},
		{"PING", "x"},
		{"EVAL", b.pick(odd...), "2", key, "other", first, owner},
	}
	return commands[b.random.IntN(len(commands))]
}

// odd are scripts that show how values are converted, and what errors become.
var odd = []string{
	"return {1, 2.9, -2.9, 'x', false, true, nil, 4}",
	"return redis.call('GET', KEYS[1])",
	"return redis.pcall('GET', KEYS[1])",
	"local e = redis.pcall('GET', KEYS[1]) if type(e) == 'table' then return {e.err} end return e",
	"return redis.call('SET', KEYS[2], ARGV[1])",
	"return redis.call('SET', KEYS[2], ARGV[1]).ok",
	"return redis.call('SET', KEYS[2], ARGV[1], 'PX', 200000 + 0.0)",
	"return redis.call('SET', KEYS[2], 2^53 - 1)",
	"return redis.call('SET', KEYS[2], 123456789012345678)",
	"return redis.call('SET', KEYS[2], 0.1)",
	"return redis.call('ZADD', KEYS[2], -1, 'x')",
	"return {redis.call('ZSCORE', KEYS[1], 't')}",
	"return string.format('%.0f', ARGV[1] + 1)",
	"return '' .. ARGV[1] % 1000 + 1",
	"return #ARGV[2] .. ' ' .. ARGV[2]",
	"return {err = 'CODE words'}",
	"return redis.error_reply('CODE words')",
	"return redis.error_reply('words')",
	"return redis.status_reply('fine')",
	"return {redis.error_reply('CODE words'), 1}",
	"return redis.call('NOSUCH')",
	"return redis.pcall('NOSUCH')",
	"return tonumber(ARGV[1])",
	"return tonumber('x')",
	"return math.floor('7.9')",
	"return {string.match('12 34 x y', '^(%d+) (%d+) (.*)$')}",
	"return {string.sub(ARGV[2], 2), string.sub(ARGV[2], 1, 1)}",
	"return redis.sha1hex(ARGV[1])",
	"return -ARGV[1] < 5",
	"return 5 and 2 or 0",
	"local t = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf') return #t",
}
