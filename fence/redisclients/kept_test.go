package redisclients

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// TestCommandsOfManyElements has a command with as many elements as are allowed, and one with more,
// at which Lua would break off.
func TestCommandsOfManyElements(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		guard := redisfence.Guard{Eval: eval}
		push := redisfence.Command{"RPUSH", "list"}
		for len(push) < 7000 {
			push = append(push, "x")
		}
		if _, err := guard.Do(t.Context(), "r", 5, redisfence.Command{"SET", "first", "done"}, push,
			push); err != nil {
			t.Fatal(err)
		}
		do(t, s, "FLUSHALL")
		_, err := guard.Do(t.Context(), "r", 5, redisfence.Command{"SET", "first", "done"},
			append(push, "x"))
		if n := do(t, s, "DBSIZE"); !errors.Is(err, fence.ErrInvalid) || n != int64(0) {
			t.Errorf("Do with 7001 elements = %v; want ErrInvalid; %v keys are written", err, n)
		}
	})
}

// TestTheHolderDeletesTheToken has commands that delete or overwrite the token that lets them in,
// even if one of them fails.
func TestTheHolderDeletesTheToken(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		key, field := redisfence.Guard{Eval: eval}, redisfence.Guard{Eval: eval, Field: "fence"}
		for name, c := range map[string]struct {
			guard    redisfence.Guard
			commands []redisfence.Command
		}{
			"DEL of the hash":   {field, []redisfence.Command{{"DEL", "r"}}},
			"HSET of the field": {field, []redisfence.Command{{"HSET", "r", "fence", "1"}}},
			"SET of the key":    {key, []redisfence.Command{{"SET", "r", "1"}}},
			"DEL of the key":    {key, []redisfence.Command{{"DEL", "r"}}},
			"DEL, and an error": {key,
				[]redisfence.Command{{"DEL", "r"}, {"NOSUCHCOMMAND", "r"}}},
			"a key of another type": {key, []redisfence.Command{{"DEL", "r"}, {"RPUSH", "r", "x"}}},
		} {
			do(t, s, "DEL", "r")
			failed := false
			if _, err := c.guard.Do(t.Context(), "r", 9, c.commands...); err != nil {
				failed = true
			}
			if failed != (name == "DEL, and an error") {
				t.Errorf("%s: Do with token 9: failed is %v", name, failed)
			}
			_, err := c.guard.Do(t.Context(), "r", 5, redisfence.Command{"SET", "written", "x"})
			if name == "a key of another type" {
				if err == nil {
					t.Errorf("%s: a key that is no token lets token 5 in", name)
				}
			} else if !errors.Is(err, fence.ErrStale) {
				t.Errorf("%s with token 9, and then token 5 = %v; want ErrStale", name, err)
			}
			if written := do(t, s, "GET", "written"); written != nil {
				t.Errorf("%s: token 5 has written %v", name, written)
			}
		}
	})
}

// TestOneDoWritesOnce sees that a client that is set up as the package shows executes no command
// twice if the connection breaks before the answer.
func TestOneDoWritesOnce(t *testing.T) {
	s := redistest.Start(t)
	address := cutting(t, s.Addr)
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			do(t, s, "FLUSHALL")
			guard := redisfence.Guard{Eval: connect(t, address)}
			if _, err := guard.Do(t.Context(), "r", 5); err != nil { // the script is there
				t.Fatal(err)
			}
			_, err := guard.Do(t.Context(), "r", 5, redisfence.Command{"INCRBY", "balance", 10})
			if n := do(t, s, "GET", "balance"); !errors.Is(err, fence.ErrUnknown) || n != "10" {
				t.Errorf("one Do = %v; want ErrUnknown; it has written %v; want 10", err, n)
			}
		})
	}
}

// cutting is a proxy that closes a connection in place of the answer to a request that has INCRBY
// in it.
func cutting(t *testing.T, to string) (address string) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()),
				"tcp", to)
			if err != nil {
				client.Close()
				return
			}
			var cut atomic.Bool
			go testserver.Pass(client, server, func(request []byte) bool {
				cut.Store(cut.Load() || bytes.Contains(request, []byte("INCRBY")))
				return true
			})
			go testserver.Pass(server, client, func(reply []byte) bool {
				// A client that is idle pings by itself.
				return !cut.Load() || string(reply) == "+PONG\r\n"
			})
		}
	}()
	return listener.Addr().String()
}
