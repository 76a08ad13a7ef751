package redismodel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// line is a client's transport in the hands of a test.
type line struct {
	*testing.T
	*redismodel.Client
	transport protocol.Transport

	mu       sync.Mutex
	messages []string
}

func (l *line) hear(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, message)
}

// heard returns the messages so far.
func (l *line) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.messages)
}

func newLine(t *testing.T, server *redismodel.Server, link redismodel.Link) *line {
	l := &line{T: t, Client: server.Client(link)}
	l.transport = l.Transport()
	l.transport.Listen(func(_ *protocol.Server, message string) { l.hear(message) })
	t.Cleanup(func() { l.transport.Close() })
	return l
}

// try sends commands on the current connection, or a new one.
func (l *line) try(ctx context.Context, commands ...protocol.Command) ([]protocol.Reply, error) {
	conn, err := l.transport.Conn(ctx, 0)
	if err != nil {
		return nil, err
	}
	replies := make([]protocol.Reply, len(commands))
	return replies, conn.Do(ctx, commands, replies)
}

func (l *line) do(commands ...protocol.Command) []protocol.Reply {
	l.Helper()
	replies, err := l.try(l.Context(), commands...)
	if err != nil {
		l.Fatalf("%q: %v", commands, err)
	}
	return replies
}

// start sends commands without waiting for the replies.
func (l *line) start(commands ...protocol.Command) (failed <-chan error) {
	result := make(chan error, 1)
	go func() {
		_, err := l.try(context.Background(), commands...)
		result <- err
	}()
	return result
}

func (l *line) wantUnknown(what string, err error) {
	l.Helper()
	if !errors.Is(err, driver.ErrUnknown) {
		l.Errorf("%s: %v; want an error that is %q", what, err, driver.ErrUnknown)
	}
}

func wantKeys(t *testing.T, server *redismodel.Server, want ...string) {
	t.Helper()
	if got := server.Keys(); !slices.Equal(got, want) {
		t.Errorf("the server has %q, want %q", got, want)
	}
}

func set(key string) protocol.Command { return protocol.Command{"SET", key, "x"} }

// Whatever the delays, and even if callers have left, commands take effect in the order in which
// they were sent.
func TestOrderOnAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 0))
		some := func() time.Duration {
			return time.Duration(random.Int64N(int64(10 * time.Millisecond)))
		}
		server := redismodel.New(redismodel.Options{})
		l := newLine(t, server, redismodel.Link{Request: some, Reply: some, Gap: some})
		l.do(protocol.Command{"PING"})
		var want []string
		gaveUp := 0
		for i := range 300 {
			name := strconv.Itoa(i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%40)*time.Millisecond+1)
			_, err := l.try(ctx, protocol.Command{"HSET", "log", name, ""},
				protocol.Command{"HSET", "log", name + "b", ""})
			if err != nil {
				l.wantUnknown("a call that was given up", err)
				gaveUp++
			}
			cancel()
			want = append(want, name, name+"b")
		}
		var got []string
		for i, reply := range l.do(protocol.Command{"HGETALL", "log"})[0].List {
			if i%2 == 0 {
				got = append(got, reply.Str)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("took effect as %q", got)
		}
		if gaveUp < 50 || gaveUp > 250 {
			t.Errorf("%d of 300 calls were given up", gaveUp)
		}
	})
}

func TestCutLosesRequests(t *testing.T) {
	for _, arrive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := redismodel.New(redismodel.Options{})
			l := newLine(t, server, steady(10*time.Millisecond))
			l.do(set("before"))
			failed := l.start(set("k"))
			time.Sleep(5 * time.Millisecond)
			l.Cut(arrive)
			l.wantUnknown("a call whose connection was cut", <-failed)
			wantKeys(t, server, "before")
			time.Sleep(time.Second)
			if arrive {
				wantKeys(t, server, "before", "k")
			} else {
				wantKeys(t, server, "before")
			}
			if l.Connected() {
				t.Error("connected after a cut")
			}
			l.do(set("after"))
		})
	}
}

// Once the next connection is there, what a former one still carries takes no effect: the next one
// makes the server close it.
func TestNextConnectionEndsTheFormer(t *testing.T) {
	for _, kill := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server := redismodel.New(redismodel.Options{})
			l := newLine(t, server, redismodel.Link{})
			l.do(set("before"))
			if !kill {
				server.Forbid("CLIENT")
			}
			l.SetLink(steady(time.Minute))
			failed := l.start(set("late"))
			synctest.Wait()
			l.Cut(true)
			l.wantUnknown("a call whose connection was cut", <-failed)
			l.SetLink(redismodel.Link{})
			l.do(set("after"))
			time.Sleep(time.Hour)
			if kill {
				wantKeys(t, server, "after", "before")
			} else {
				wantKeys(t, server, "after", "before", "late")
			}
		})
	}
}

func TestCutInThePipeline(t *testing.T) {
	for arrive, want := range [][]string{{}, {"a"}, {"a", "b"}, {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			server := redismodel.New(redismodel.Options{})
			cut := true
			l := newLine(t, server, redismodel.Link{Cut: func(commands int) (int, bool) {
				defer func() { cut = false }()
				if commands != 3 {
					t.Errorf("asked about %d commands", commands)
				}
				return arrive, cut
			}})
			_, err := l.try(t.Context(), set("a"), set("b"), set("c"))
			l.wantUnknown("a call that was cut", err)
			wantKeys(t, server, want...)
			l.do(set("d"), set("e"), set("f"))
		})
	}
}

func TestCutReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		l := newLine(t, server, redismodel.Link{})
		l.CutReply(func(commands []protocol.Command, _ []protocol.Reply) bool {
			return commands[0][1] == "b"
		})
		l.do(set("a"))
		_, err := l.try(t.Context(), set("b"))
		l.wantUnknown("a call whose reply was cut", err)
		wantKeys(t, server, "a", "b")
		l.do(set("b"))
	})
}

// Replies that a killed server had sent still arrive. Requests that it had not taken are lost.
func TestStopDeliversWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		l := newLine(t, server, steady(10*time.Millisecond))
		l.do(set("before"))
		first := l.start(set("a"))
		time.Sleep(15 * time.Millisecond)
		second := l.start(set("b"))
		time.Sleep(time.Millisecond)
		server.Stop()
		if err := <-first; err != nil {
			t.Errorf("a call that was answered before the server stopped: %v", err)
		}
		l.wantUnknown("a call that the server did not live to see", <-second)
		if _, err := l.try(t.Context(), set("c")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a call to a server that does not run: %v", err)
		}
		server.Restart()
		wantKeys(t, server, "a", "before")
		l.do(set("d"))
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		l := newLine(t, server, redismodel.Link{})
		sha := protocol.Scripts()[0].SHA
		loaded := func() int64 { return server.Do("SCRIPT", "EXISTS", sha).List[0].Int }
		run := func() *protocol.Server {
			conn, err := l.transport.Conn(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return conn.Server()
		}
		l.do(protocol.Command{"SET", "value", "old"}, protocol.Command{"SET", "short", "x", "PX",
			"5000"}, set("dropped"))
		before := server.Snapshot()
		l.do(protocol.Command{"SET", "value", "new"}, protocol.Command{"DEL", "dropped"},
			set("added"), protocol.Command{"ZADD", "z", "1", "m"})
		first := run()
		if loaded() != 1 {
			t.Error("the greeting has loaded no scripts")
		}
		time.Sleep(time.Minute)

		server.Restart()
		wantKeys(t, server, "added", "value", "z")
		if loaded() != 0 {
			t.Error("the scripts have outlived the server")
		}
		second := run()
		if second.RunID == first.RunID || time.Since(second.Booted) > 2*time.Second ||
			time.Since(first.Booted) < time.Minute {
			t.Errorf("before the restart %+v, after it %+v", first, second)
		}

		server.Start(before)
		if wantKeys(t, server, "dropped", "value"); server.Get("value") != "old" {
			t.Errorf("value is %q after going back", server.Get("value"))
		}
		// A snapshot does not change with the server that was started on it.
		l.do(protocol.Command{"SET", "value", "newer"}, protocol.Command{"DEL", "dropped"})
		server.Start(before)
		if wantKeys(t, server, "dropped", "value"); server.Get("value") != "old" {
			t.Errorf("value is %q after going back again", server.Get("value"))
		}

		server.Start(nil)
		wantKeys(t, server)
	})
}

// A pause holds up everything, in order, and so does a line that hangs. A connection that owes an
// answer for too long is given up.
func TestHangs(t *testing.T) {
	for what, hold := range map[string]func(*line) (release func()){
		"server":   func(l *line) func() { l.Server().Pause(); return l.Server().Resume },
		"both":     func(l *line) func() { l.Hang(redismodel.Both); return l.Resume },
		"requests": func(l *line) func() { l.Hang(redismodel.Requests); return l.Resume },
		"replies":  func(l *line) func() { l.Hang(redismodel.Replies); return l.Resume },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redismodel.New(redismodel.Options{})
				l := newLine(t, server, steady(time.Millisecond))
				l.do(set("before"))
				release := hold(l)
				failed := l.start(set("a"))
				time.Sleep(4 * time.Second)
				select {
				case err := <-failed:
					t.Fatalf("answered: %v", err)
				default:
				}
				if done := server.Get("a") != ""; done != (what == "replies") {
					t.Errorf("took effect: %v", done)
				}
				release()
				if err := <-failed; err != nil {
					t.Errorf("after it: %v", err)
				}

				release = hold(l)
				began := time.Now()
				l.wantUnknown("a call that is not answered", <-l.start(set("b")))
				if waited := time.Since(began); waited != 5*time.Second {
					t.Errorf("given up after %v", waited)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := l.try(ctx, set("c")); !errors.Is(err, driver.ErrUnavailable) ||
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a call without a connection: %v", err)
				}
				release()
				l.do(set("d"))
				wantKeys(t, server, "a", "b", "before", "d")
			})
		})
	}
}

// Between two commands that were sent together, the server may serve others.
func TestPipelineIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server *redismodel.Server
		var between []string
		server = redismodel.New(redismodel.Options{Between: func(_ *redismodel.Client,
			next protocol.Command) {
			between = append(between, next[0])
			server.Do("INCR", "foreign")
		}})
		l := newLine(t, server, redismodel.Link{})
		script := protocol.Command{"EVAL",
			"redis.call('INCR', 'a') redis.call('INCR', 'a') return redis.call('GET', 'foreign')",
			"0"}
		replies := l.do(set("x"), script, protocol.Command{"GET", "foreign"})
		if got := fmt.Sprint(between); got != "[EVAL GET]" || replies[1].Str != "1" ||
			replies[2].Str != "2" {
			t.Errorf("split before %s, and seen in between: %+v", got, replies)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		a := newLine(t, server, redismodel.Link{Gap: func() time.Duration {
			return 10 * time.Millisecond
		}})
		b := newLine(t, server, redismodel.Link{})
		b.do(protocol.Command{"PING"})
		var done sync.WaitGroup
		done.Go(func() {
			replies := a.do(protocol.Command{"SET", "k", "a", "NX", "PX", "10000"},
				protocol.Command{"GET", "k"})
			if replies[0].Kind != protocol.String || replies[1].Str != "b" {
				t.Errorf("a: %+v", replies)
			}
		})
		time.Sleep(time.Millisecond)
		b.do(protocol.Command{"DEL", "k"})
		b.do(protocol.Command{"SET", "k", "b", "NX", "PX", "10000"})
		done.Wait()
	})
	// With MULTI they are one step.
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		a := newLine(t, server, redismodel.Link{Gap: func() time.Duration {
			return 10 * time.Millisecond
		}})
		replies := a.do(protocol.Command{"MULTI"}, set("k"), protocol.Command{"GET", "k"},
			protocol.Command{"EXEC"})
		if replies[2].Str != "QUEUED" || len(replies[3].List) != 2 ||
			replies[3].List[1].Str != "x" {
			t.Errorf("MULTI: %+v", replies)
		}
	})
}

func TestNotices(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := redismodel.New(redismodel.Options{})
			l := newLine(t, server, steady(10*time.Millisecond))
			conn, err := l.transport.Conn(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			channel, ok := strings.CutPrefix(conn.Route(t.Context(), 0), "P")
			if !ok {
				t.Fatalf("route %q", conn.Route(t.Context(), 0))
			}
			publish := func(message string) int64 {
				return server.Do("PUBLISH", channel, message).Int
			}
			if n := publish("1") + publish("2"); n != 2 {
				t.Errorf("%d heard it", n)
			}
			time.Sleep(9 * time.Millisecond)
			if cut {
				l.Cut(false)
			}
			synctest.Wait()
			if heard := l.heard(); len(heard) > 0 {
				t.Errorf("heard %q too early", heard)
			}
			time.Sleep(time.Second)
			if got := fmt.Sprint(l.heard()); !cut && got != "[1 2]" || cut && got != "[]" {
				t.Errorf("heard %s; cut: %v", got, cut)
			}
			if n := publish("3"); cut && n != 0 {
				t.Error("subscribed after a cut")
			}
			l.do(protocol.Command{"PING"})
			if n := publish("4"); n != 1 {
				t.Error("the next connection has not subscribed")
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		server.Forbid("SUBSCRIBE")
		conn, err := newLine(t, server, redismodel.Link{}).transport.Conn(t.Context(), 0)
		if err != nil || conn.Route(t.Context(), 0) != "" {
			t.Errorf("route where SUBSCRIBE is refused: %v", err)
		}
	})
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{Offset: time.Hour})
		if ahead := time.Until(server.Time()); ahead != time.Hour {
			t.Errorf("ahead by %v", ahead)
		}
		lease := func() int64 { return server.Do("PTTL", "k").Int }
		server.Do("SET", "k", "x", "PX", "10000")
		time.Sleep(4 * time.Second)
		if lease() != 6000 {
			t.Errorf("%d ms left of 6 s", lease())
		}
		server.SetRate(2)
		time.Sleep(time.Second)
		if lease() != 4000 {
			t.Errorf("%d ms left of 4 s, on a clock twice as fast", lease())
		}
		server.StepClock(-time.Second)
		if lease() != 5000 {
			t.Errorf("%d ms left of 5 s, after the clock was set back", lease())
		}
		server.StepClock(5 * time.Second)
		if lease() != 0 {
			t.Errorf("%d ms left in the last millisecond", lease())
		}
		time.Sleep(time.Millisecond)
		if lease() != -2 {
			t.Errorf("%d ms left after the end", lease())
		}
		// 4 s, 1 s twice as fast, a step back by 1 s and one forward by 5 s.
		if info := server.Do("INFO", "server").Str; !strings.Contains(info,
			"uptime_in_seconds:10\r\n") {
			t.Errorf("up by its own clock: %s", info)
		}
	})
}

func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, other := redismodel.New(redismodel.Options{}), redismodel.New(redismodel.Options{})
		other.Do("SET", "theirs", "x")
		l := newLine(t, server, redismodel.Link{})
		l.do(set("ours"))
		history := func() string {
			_, after, _ := strings.Cut(server.Do("INFO", "replication").Str, "master_replid:")
			return after
		}
		first := history()
		conn, err := l.transport.Conn(t.Context(), 0)
		if err != nil || !conn.Server().Forgot.IsZero() {
			t.Fatalf("connected, %v, to %+v", err, conn.Server())
		}
		time.Sleep(time.Minute)
		server.ReplicaOf(other)
		if wantKeys(t, server, "theirs"); !conn.Server().Forgot.Equal(time.Now()) {
			t.Errorf("of a server that has lost its data the connection knows %+v", conn.Server())
		}
		if reply := l.do(set("k"))[0]; reply.Kind != protocol.Failure ||
			!strings.HasPrefix(reply.Str, "READONLY") {
			t.Errorf("a replica's answer: %+v", reply)
		}
		if _, err := l.try(t.Context(), set("k")); !driver.Permanent(err) {
			t.Errorf("a connection to a replica: %v", err)
		}
		run := server.RunID()
		server.Promote()
		l.do(set("k"))
		if conn, err = l.transport.Conn(t.Context(), 0); err != nil ||
			!conn.Server().Forgot.Equal(time.Now()) {
			t.Errorf("of a server that was a replica the next connection knows %+v, %v",
				conn.Server(), err)
		}
		if wantKeys(t, server, "k", "theirs"); server.RunID() != run || history() == first {
			t.Error("a role that changes leaves the run, and changes the history")
		}
	})
}

// A checker looks for this: everything but the fence is gone when nobody holds or waits.
func TestKeysShowWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		b := server.Client(redismodel.Link{}).Backend()
		defer b.Close()
		keys := protocol.KeysOf("lock:a")
		holder := driver.Claim{Key: keys.Lock, Owner: "A", TTL: time.Minute}
		waiter := driver.Claim{Key: keys.Lock, Owner: "B", TTL: time.Minute, Queue: true}
		for _, claim := range []driver.Claim{holder, waiter} {
			if _, err := b.Acquire(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		}
		wantKeys(t, server, keys.Queue, keys.Waiters, keys.Lock)
		for _, claim := range []driver.Claim{holder, waiter} {
			if _, err := b.Release(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		}
		wantKeys(t, server)
		if server.Do("EXISTS", keys.Fence).Int != 1 {
			t.Error("the fence is gone")
		}
	})
}

// BenchmarkLock measures an acquisition and its release, without and with delays.
func BenchmarkLock(b *testing.B) {
	for name, link := range map[string]redismodel.Link{"direct": {},
		"delayed": steady(time.Microsecond)} {
		b.Run(name, func(b *testing.B) {
			backend := redismodel.New(redismodel.Options{}).Client(link).Backend()
			defer backend.Close()
			claim := driver.Claim{Key: "lock:a", Owner: "A", TTL: time.Minute}
			for b.Loop() {
				claim.Token++
				if _, err := backend.Acquire(b.Context(), claim); err != nil {
					b.Fatal(err)
				}
				if _, err := backend.Release(b.Context(), claim); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
