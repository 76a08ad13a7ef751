//go:build unix

package etcdhold_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
)

func locker(b *testing.B) *holdfast.Locker {
	l, err := holdfast.New(open(b, connect(b)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

func session(b *testing.B, client *clientv3.Client) *concurrency.Session {
	s, err := concurrency.NewSession(client)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkPair acquires a free key and releases it.
func BenchmarkPair(b *testing.B) {
	b.Run("holdfast", func(b *testing.B) {
		l := locker(b)
		for b.Loop() {
			lock, err := l.Acquire(b.Context(), "pair")
			if err == nil {
				err = lock.Release(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mutex", func(b *testing.B) {
		s := session(b, connect(b))
		for b.Loop() {
			m := concurrency.NewMutex(s, "mutex/pair")
			err := m.Lock(b.Context())
			if err == nil {
				err = m.Unlock(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHandoff measures from the release by one process until another process holds the key.
func BenchmarkHandoff(b *testing.B) {
	b.Run("holdfast", func(b *testing.B) {
		one, other := locker(b), locker(b)
		held, err := one.Acquire(b.Context(), "handoff")
		for b.Loop() {
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			next := make(chan *holdfast.Lock, 1)
			go func() {
				lock, _ := other.Acquire(b.Context(), "handoff")
				next <- lock
			}()
			time.Sleep(50 * time.Millisecond) // it waits by then; if not, the result is too good
			b.StartTimer()
			err = held.Release(b.Context())
			if held = <-next; held == nil {
				b.Fatal("not handed over")
			}
			one, other = other, one
		}
		held.Release(b.Context())
	})
	b.Run("mutex", func(b *testing.B) {
		one, other := session(b, connect(b)), session(b, connect(b))
		held := concurrency.NewMutex(one, "mutex/handoff")
		err := held.Lock(b.Context())
		for b.Loop() {
			b.StopTimer()
			next := make(chan *concurrency.Mutex, 1)
			go func() {
				m := concurrency.NewMutex(other, "mutex/handoff")
				m.Lock(b.Context())
				next <- m
			}()
			time.Sleep(50 * time.Millisecond) // it waits by then
			b.StartTimer()
			if err == nil {
				err = held.Unlock(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
			held = <-next
			one, other = other, one
		}
		held.Unlock(b.Context())
	})
}
