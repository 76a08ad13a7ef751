package protocol_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// scanned is a server with these pages of held keys, and queues. It keeps nothing of what is sent.
type scanned struct {
	fake
	pages  int
	page   func(number int) []string
	queues []string
	away   bool                                    // once
	breaks func(commands []protocol.Command) error // the connection, at these; may be nil
}

func (s *scanned) Conn(context.Context, uint16) (protocol.Conn, error) { return s, nil }

func (s *scanned) All(context.Context) ([]protocol.Conn, error) {
	if s.away {
		s.away = false
		return nil, &driver.Error{Err: errTimeout}
	}
	return []protocol.Conn{s}, nil
}

var errTimeout = errors.New("i/o timeout")

func (s *scanned) Do(_ context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	if s.breaks != nil {
		if err := s.breaks(commands); err != nil {
			return err
		}
	}
	for i, command := range commands {
		replies[i] = s.reply(command)
	}
	return nil
}

func (s *scanned) reply(command protocol.Command) protocol.Reply {
	switch command[0] {
	case "SCAN":
		if command[7] == "zset" {
			return scanReply(0, s.queues)
		}
		if command[7] == "hash" {
			return scanReply(0, nil)
		}
		number, _ := strconv.Atoi(command[1])
		return scanReply((number+1)%s.pages, s.page(number))
	case "GETRANGE":
		return protocol.Reply{Kind: protocol.String, Str: "o"}
	case "PTTL":
		return protocol.Reply{Kind: protocol.Integer, Int: 1000}
	case "EVALSHA": // of inspect, for a lock that is only waited for
		return protocol.Reply{Kind: protocol.List, List: []protocol.Reply{{},
			{Kind: protocol.Integer, Int: -2}, {Kind: protocol.String, Str: "w"},
			{Kind: protocol.Integer, Int: 1000}}}
	}
	return protocol.Reply{Kind: protocol.Failure, Str: "ERR " + command[0]}
}

func scanReply(next int, keys []string) protocol.Reply {
	list := make([]protocol.Reply, len(keys))
	for i, key := range keys {
		list[i] = protocol.Reply{Kind: protocol.String, Str: key}
	}
	return protocol.Reply{Kind: protocol.List, List: []protocol.Reply{
		{Kind: protocol.String, Str: strconv.Itoa(next)}, {Kind: protocol.List, List: list}}}
}

// keysFrom returns as many keys as a page has, of a kilobyte each.
func keysFrom(first int) (keys []string) {
	for i := range 500 {
		keys = append(keys, padding+strconv.Itoa(first+i))
	}
	return keys
}

var padding = "lock:" + strings.Repeat("0", 1000)

// What a list takes in memory does not grow with the number of keys.
func TestListRemembersFewKeys(t *testing.T) {
	s := &scanned{pages: 80, page: func(number int) []string { return keysFrom(number * 500) }}
	b := protocol.New(s, protocol.Options{})
	live := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before, listed := live(), 0
	for _, err := range b.List(t.Context(), "lock:") {
		if err != nil {
			t.Fatal(err)
		}
		if listed++; listed == s.pages*500 {
			// All keys have 40 MB, and those that are remembered 8 MB.
			if more := live() - before; more > 20<<20 {
				t.Errorf("after %d keys %d bytes more are in use", listed, more)
			}
		}
	}
	if listed != s.pages*500 {
		t.Errorf("%d keys are listed; want %d", listed, s.pages*500)
	}
}

// A key comes once, though a server gives it again, on the same page or on one of the next, and
// though somebody waits for it.
func TestListGivesAKeyOnce(t *testing.T) {
	s := &scanned{
		pages: 9,
		page: func(number int) []string {
			keys := keysFrom(number * 500)
			if number > 0 {
				keys = append(keys, keysFrom((number-1)*500)...)
			}
			return append(keys, keys[0], "lock:waited")
		},
		queues: []string{protocol.KeysOf("lock:waited").Queue, protocol.KeysOf("lock:free").Queue,
			protocol.KeysOf("lock:waited").Queue, protocol.KeysOf("other").Queue},
	}
	got := make(map[string]int)
	for e, err := range protocol.New(s, protocol.Options{}).List(t.Context(), "lock:") {
		if err != nil {
			t.Fatal(err)
		}
		got[e.Key]++
		if held := e.Holder != (driver.Party{}); held == strings.HasSuffix(e.Key, "free") {
			t.Errorf("%q: held %v", e.Key, held)
		}
	}
	if len(got) != 9*500+2 {
		t.Errorf("%d keys are listed", len(got))
	}
	for key, times := range got {
		if times != 1 {
			t.Errorf("%q is listed %d times", key, times)
		}
	}
}

// A list goes on where it was when a connection breaks, as when a server is busy for too long: the
// cursor belongs to the server. It tries two more connections, and the list ends if neither answers
// or another run of the server does. Nothing is unknown of a list.
func TestListGoesOn(t *testing.T) {
	broken := &driver.Error{Maybe: true, Err: errTimeout}
	isBroken := func(err error) bool {
		return errors.Is(err, errTimeout) && errors.Is(err, driver.ErrUnavailable)
	}
	list := func(times int, what, after string) (listed int, last error) {
		s := &scanned{pages: 9, page: func(number int) []string { return keysFrom(number * 500) }}
		s.server = &protocol.Server{RunID: "a run"}
		calls, once := 0, times == 1
		s.breaks = func(commands []protocol.Command) error {
			if calls++; calls > 6 && times > 0 && commands[0][0] == what {
				times--
				s.away = once // and a new one cannot be made at first
				s.server = &protocol.Server{RunID: after}
				return broken
			}
			return nil
		}
		for _, err := range protocol.New(s, protocol.Options{}).List(t.Context(), "lock:") {
			if last = err; err == nil {
				listed++
			}
		}
		return listed, last
	}
	for _, what := range []string{"SCAN", "GETRANGE"} {
		for times := range 3 {
			if n, err := list(times, what, "a run"); n != 9*500 || err != nil {
				t.Errorf("%s breaks %d times: %d keys, %v; want %d", what, times, n, err, 9*500)
			}
		}
		if n, err := list(3, what, "a run"); n == 9*500 || !isBroken(err) {
			t.Errorf("%s breaks three times: %d keys, %v; want %v", what, n, err, broken)
		}
		if n, err := list(1, what, "another run"); n == 9*500 || !isBroken(err) {
			t.Errorf("%s of a new run: %d keys, %v; want %v", what, n, err, broken)
		}
	}
}
