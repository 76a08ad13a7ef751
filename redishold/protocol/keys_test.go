package protocol_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// keySlots asks a server.
type keySlots struct {
	t      testing.TB
	client *redistest.Client
}

func newKeySlots(t testing.TB) keySlots {
	server := redistest.Start(t, redistest.WithCluster(t))
	client, err := server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return keySlots{t, client}
}

func (k keySlots) of(key string) uint16 {
	k.t.Helper()
	reply, err := k.client.Try("CLUSTER", "KEYSLOT", key)
	if err != nil {
		k.t.Fatal(err)
	}
	return uint16(reply.(int64))
}

// check compares all keys of a lock with the server's idea of the lock key's slot.
func (k keySlots) check(lock string) {
	k.t.Helper()
	want := k.of(lock)
	keys := protocol.KeysOf(lock)
	if keys.Slot != want || protocol.Slot(lock) != want {
		k.t.Fatalf("lock %q is in slot %d, not %d", lock, want, keys.Slot)
	}
	if keys.Lock != lock {
		k.t.Fatalf("lock %q is kept at %q", lock, keys.Lock)
	}
	for _, key := range []string{keys.Queue, keys.Waiters, keys.Readers, keys.Fence,
		protocol.Channel(want, "id")} {
		if got := k.of(key); got != want {
			k.t.Fatalf("lock %q is in slot %d and %q in %d", lock, want, key, got)
		}
	}
}

var awkwardNames = []string{
	"k", "{k}", "{}", "{}k", "a{b}c", "a{b", "a}b", "}{", "{{k}}", "{k}{l}", "a{}b{c}", "{", "}",
	"\x00", "{\x00}", "a\r\nb", " ",
	"größer", "{☂}", strings.Repeat("x", driver.MaxKeyLen), strings.Repeat("{", driver.MaxKeyLen),
	"holdfast:q:{0}", "%s", "*",
}

func TestKeysAreInOneSlot(t *testing.T) {
	slots := newKeySlots(t)
	for _, name := range awkwardNames {
		slots.check(name)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		name := make([]byte, 1+random.IntN(20))
		for i := range name {
			name[i] = "{}{}ab\x00\xff:"[random.IntN(9)]
		}
		slots.check(string(name))
	}
}

func TestEverySlotHasATag(t *testing.T) {
	slots := newKeySlots(t)
	seen := make(map[string]bool)
	for slot := range uint16(protocol.Slots) {
		tag := protocol.Tag(slot)
		if got := slots.of("holdfast:f:{" + tag + "}"); got != slot {
			t.Fatalf("tag %q of slot %d is in slot %d", tag, slot, got)
		}
		if seen[tag] || len(tag) > 4 {
			t.Fatalf("tag %q of slot %d is long or not unique", tag, slot)
		}
		seen[tag] = true
	}
}

// The table is shared by all clients of a deployment, of any version. These are fixed for ever.
func TestTagsAreFixed(t *testing.T) {
	for slot, want := range map[uint16]string{
		0: "1bz", 1: "emj", 5798: "j83", 8191: "7ho", 12182: "foo", 16383: "hia",
	} {
		if got := protocol.Tag(slot); got != want {
			t.Errorf("tag of slot %d is %q, was %q", slot, got, want)
		}
	}
}

func TestKeysOfDifferentLocksDiffer(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range awkwardNames {
		keys := protocol.KeysOf(name)
		for _, key := range []string{keys.Lock, keys.Queue, keys.Waiters, keys.Readers} {
			if other, ok := seen[key]; ok {
				t.Errorf("locks %q and %q share %q", name, other, key)
			}
			seen[key] = name
		}
	}
}

func FuzzKeys(f *testing.F) {
	for _, name := range awkwardNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		keys := protocol.KeysOf(name)
		for _, key := range []string{keys.Queue, keys.Waiters, keys.Readers, keys.Fence} {
			if got := protocol.Slot(key); got != keys.Slot {
				t.Errorf("lock %q is in slot %d and %q in %d", name, keys.Slot, key, got)
			}
		}
		if !strings.HasSuffix(keys.Queue, fmt.Sprintf("{%s}:%s", protocol.Tag(keys.Slot), name)) {
			t.Errorf("the queue of %q is %q", name, keys.Queue)
		}
	})
}
