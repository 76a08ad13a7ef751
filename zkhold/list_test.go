//go:build unix

package zkhold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// list returns how often each key comes, and the error, after which nothing may come.
func list(ctx context.Context, t testing.TB, b *zkhold.Backend, prefix string) (map[string]int,
	error) {
	t.Helper()
	keys := make(map[string]int)
	var failed error
	for e, err := range b.List(ctx, prefix) {
		if failed != nil {
			t.Fatalf("after the error %v List yields %+v, %v", failed, e, err)
		}
		if e.Waiters != nil {
			t.Errorf("List shows who waits for %q: %+v", e.Key, e.Waiters)
		}
		if failed = err; err == nil {
			keys[e.Key]++
		}
	}
	return keys, failed
}

// Locks in many slots are listed once each, without those of another prefix.
func TestListManySlots(t *testing.T) {
	b := open(t, newURL(t))
	const n = 60
	for i := range n {
		acquire(t, b, claim(fmt.Sprintf("a/%d", i)), driver.Held)
	}
	acquire(t, b, claim("b"), driver.Held)
	acquire(t, b, queued("a/7"), driver.Busy)
	ctx, cancel := patience(t)
	defer cancel()
	keys, err := list(ctx, t, b, "a/")
	if err != nil || len(keys) != n {
		t.Errorf("List yields %d keys, %v; want %d", len(keys), err, n)
	}
	for key, times := range keys {
		if times != 1 || !strings.HasPrefix(key, "a/") {
			t.Errorf("List yields %q %d times", key, times)
		}
	}
}

// If one slot cannot be read, the whole listing fails with its error.
func TestListFails(t *testing.T) {
	url := newURL(t)
	b := open(t, url)
	for i := range 50 {
		acquire(t, b, claim(fmt.Sprint(i)), driver.Held)
	}
	slot := zkhold.SlotPath(t, url, "7")
	if _, err := direct(t).Set(slot, []byte("no record"), -1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := patience(t)
	defer cancel()
	_, err := list(ctx, t, b, "")
	if !driver.Permanent(err) || !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), slot) {
		t.Errorf("List yields the error %v; want one that is permanent and names %s", err, slot)
	}
}

// A listing without an answer ends with its context.
func TestListWithoutAnswer(t *testing.T) {
	b := open(t, newURL(t))
	acquire(t, b, claim("k"), driver.Held)
	server.Freeze()
	defer server.Thaw()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(20*time.Millisecond, cancel)
	for range 2 { // while it lasts, and when it has ended
		_, err := list(ctx, t, b, "")
		if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("List without an answer yields the error %v; want that of its context", err)
		}
	}
}

// If the caller breaks a listing off, the reads of slots that are under way end, too.
func TestListIsLeft(t *testing.T) {
	b := open(t, newURL(t))
	for i := range 50 {
		acquire(t, b, claim(fmt.Sprint(i)), driver.Held)
	}
	ctx, cancel := patience(t)
	defer cancel()
	for range b.List(ctx, "") {
		break
	}
	if err := b.Close(); err != nil { // waits for them
		t.Error(err)
	}
	if _, err := list(ctx, t, b, ""); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("List after Close yields the error %v; want ErrUnavailable", err)
	}
}
