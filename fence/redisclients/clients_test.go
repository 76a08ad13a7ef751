package redisclients

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// clients are the ways to run a script.
var clients = map[string]func(t testing.TB, address string) redisfence.Eval{
	"go-redis": func(t testing.TB, address string) redisfence.Eval {
		client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1,
			ContextTimeoutEnabled: true, DialTimeout: testserver.Patience,
			ReadTimeout: testserver.Patience, WriteTimeout: testserver.Patience})
		t.Cleanup(func() { client.Close() })
		return func(ctx context.Context, script string, keys []string, args []any) (any, error) {
			return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
		}
	},
	"rueidis": func(t testing.TB, address string) redisfence.Eval {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address},
			DisableCache: true, ConnWriteTimeout: testserver.Patience,
			Dialer: net.Dialer{Timeout: testserver.Patience}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return func(ctx context.Context, script string, keys []string, args []any) (any, error) {
			return rueidis.NewLuaScript(script).Exec(ctx, client, keys,
				redisfence.Strings(args)).ToAny()
		}
	},
}

// each runs f with each client on an empty server.
func each(t *testing.T, f func(t *testing.T, s *redistest.Server, eval redisfence.Eval)) {
	s := redistest.Start(t, redistest.WithAOF("always"))
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			do(t, s, "FLUSHALL")
			f(t, s, connect(t, s.Addr))
		})
	}
}

func do(t testing.TB, s *redistest.Server, args ...any) any {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr, DialTimeout: testserver.Patience,
		ReadTimeout: testserver.Patience, WriteTimeout: testserver.Patience})
	defer client.Close()
	reply, err := client.Do(context.WithoutCancel(t.Context()), args...).Result()
	if err != nil && err != redis.Nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// harness has values as strings with the token in a key beside, or as hashes with the token in a
// field.
func harness(s *redistest.Server, eval redisfence.Eval, field string) fencetest.Harness {
	return fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
		do(t, s, "FLUSHALL")
		guard := redisfence.Guard{Eval: eval, Field: field}
		write := func(resource, value string) redisfence.Command {
			return redisfence.Command{"SET", "value:" + resource, value}
		}
		read := func(resource string) []any { return []any{"GET", "value:" + resource} }
		if field != "" {
			write = func(resource, value string) redisfence.Command {
				return redisfence.Command{"HSET", resource, "value", value}
			}
			read = func(resource string) []any { return []any{"HGET", resource, "value"} }
		}
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				if pause != nil {
					pause()
				}
				_, err := guard.Do(ctx, resource, token, write(resource, value))
				return err
			},
			Read: func(_ context.Context, resource string) (string, error) {
				value, _ := do(t, s, read(resource)...).(string)
				return value, nil
			},
			Crash: func(t testing.TB) {
				s.Kill()
				s.Run(t)
			},
		}
	}}
}

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		t.Run("key", func(t *testing.T) { fencetest.Run(t, harness(s, eval, "")) })
		t.Run("field", func(t *testing.T) { fencetest.Run(t, harness(s, eval, "fence")) })
	})
}

func TestMutants(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		for name, m := range map[string]struct {
			old, with string
			red       []string
		}{
			"refuses the same again": {"tonumber(stored) > tonumber(token)",
				"tonumber(stored) >= tonumber(token)", []string{"Order/AcceptsTheSameAgain"}},
			"compares texts": {"tonumber(stored) > tonumber(token)", "stored > token",
				[]string{"Order/AcceptsLarger"}},
			"takes any token": {"return {'STALE', stored}", "",
				[]string{"Order/RefusesSmaller", "Concurrency/OlderThatBeganFirst"}},
			"remembers what it refuses": {"return {'STALE', stored}",
				"redis.call('SET', KEYS[1], token) return {'STALE', stored}",
				[]string{"Order/RefusedIsNotRemembered"}},
		} {
			t.Run(name, func(t *testing.T) {
				broken := func(ctx context.Context, script string, keys []string, args []any) (any,
					error) {
					changed := strings.Replace(script, m.old, m.with, 1)
					if changed == script {
						t.Fatal("the script is not changed")
					}
					return eval(ctx, changed, keys, args)
				}
				fencetest.Catches(t, harness(s, broken, ""), m.red...)
			})
		}
	})
}

func TestAnyCommands(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		guard := redisfence.Guard{Eval: eval}
		replies, err := guard.Do(t.Context(), "{a}:fence", 5,
			redisfence.Command{"SET", "{a}:s", "x y\x00"}, redisfence.Command{"INCRBY", "{a}:n", 7},
			redisfence.Command{"GET", "{a}:absent"},
			redisfence.Command{"RPUSH", "{a}:l", "1", "2"},
			redisfence.Command{"LRANGE", "{a}:l", 0, -1}, redisfence.Command{"GET", "{a}:s"})
		if err != nil || len(replies) != 6 || replies[0] != "OK" || replies[1] != int64(7) ||
			replies[2] != "" || replies[3] != int64(2) || replies[5] != "x y\x00" {
			t.Errorf("Do = %#v, %v", replies, err)
		} else if list, _ := replies[4].([]any); !slices.Equal(list, []any{"1", "2"}) {
			t.Errorf("LRANGE = %#v", replies[4])
		}
		_, err = guard.Do(t.Context(), "{a}:fence", 6, redisfence.Command{"SET", "{a}:s", "z"},
			redisfence.Command{"INCR", "{a}:l"}, redisfence.Command{"SET", "{a}:s", "never"})
		if err == nil || !strings.Contains(err.Error(), "command 2 of 3") ||
			!strings.Contains(err.Error(), "WRONGTYPE") || errors.Is(err, fence.ErrUnknown) {
			t.Errorf("Do with a command that fails = %v; want it named", err)
		}
		if v := do(t, s, "GET", "{a}:s"); v != "z" {
			t.Errorf("after a command that fails the first has left %q", v)
		}
		if _, err := guard.Do(t.Context(), "{a}:fence", 5); !errors.Is(err, fence.ErrStale) {
			t.Errorf("Do with the token before = %v; want ErrStale", err)
		}
		for _, c := range []redisfence.Command{{}, {"SET"}, {"SET", 1, 2}} {
			if _, err := guard.Do(t.Context(), "{a}:fence", 9, c); !errors.Is(err,
				fence.ErrInvalid) {
				t.Errorf("Do of %v = %v; want ErrInvalid", c, err)
			}
		}
		do(t, s, "SET", "{a}:fence", "12x")
		if _, err := guard.Do(t.Context(), "{a}:fence", fence.MaxToken); !errors.Is(err,
			fence.ErrUnavailable) || !strings.Contains(err.Error(), "12x") {
			t.Errorf("Do where the token is broken = %v; want ErrUnavailable", err)
		}
	})
}

func TestUnansweredIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		guard := redisfence.Guard{Eval: eval}
		if _, err := guard.Do(t.Context(), "r", 1); err != nil { // the script is loaded
			t.Fatal(err)
		}
		s.Freeze()
		defer s.Thaw()
		// Not before the guard has called it, however busy the machine is.
		guard.Eval = func(ctx context.Context, script string, keys []string,
			args []any) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return eval(ctx, script, keys, args)
		}
		_, err := guard.Do(t.Context(), "r", 2)
		if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrStale) {
			t.Errorf("Do on a frozen server = %v; want ErrUnknown", err)
		}
	})
}

func TestServerThatRefusesIsDefinite(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, eval redisfence.Eval) {
		do(t, s, "LPUSH", "list", "x")
		_, err := redisfence.Guard{Eval: eval}.Do(t.Context(), "list", 2)
		if err == nil || errors.Is(err, fence.ErrUnknown) ||
			!strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Do on a list = %v; want the server's words, and no ErrUnknown", err)
		}
	})
}

// TestCluster sees that keys of one slot are written, and that the server refuses others without a
// trace.
func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	var addresses []string
	for _, s := range cluster.Primaries {
		addresses = append(addresses, s.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses,
		DialTimeout: testserver.Patience, ReadTimeout: testserver.Patience,
		WriteTimeout: testserver.Patience})
	defer client.Close()
	guard := redisfence.Guard{Eval: func(ctx context.Context, script string, keys []string,
		args []any) (any, error) {
		return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
	}}
	for _, name := range []string{"a", "b", "c", "d"} { // on any of the servers
		key, token := "{"+name+"}", "{"+name+"}:fence"
		if _, err := guard.Do(t.Context(), token, 5,
			redisfence.Command{"SET", key, "x"}); err != nil {
			t.Error(err)
		}
		if _, err := guard.Do(t.Context(), token, 4,
			redisfence.Command{"SET", key, "y"}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("Do with an older token = %v; want ErrStale", err)
		}
		if v := client.Get(t.Context(), key).Val(); v != "x" {
			t.Errorf("%s is %q", key, v)
		}
	}
	_, err := guard.Do(t.Context(), "{a}:fence", 9, redisfence.Command{"SET", "{b}", "z"})
	if err == nil || !strings.Contains(err.Error(), "slot") || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("Do over two slots = %v; want the server's refusal", err)
	}
	if _, err := guard.Do(t.Context(), "{a}:fence", 6); err != nil {
		t.Errorf("Do after the refusal = %v: it has left its token", err)
	}
}
