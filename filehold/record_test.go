//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func sampleRecord(waiters int) record {
	r := record{key: "key\x00\xff", holder: &party{owner: "holder", member: memberID{1, 2}, until: 12345, token: 1 << 52, block: 64}}
	for i := range waiters {
		r.queue = append(r.queue, &party{owner: fmt.Sprint("waiter", i), member: memberID{3}, until: 1 << 60, ticket: uint64(i + 1), arrived: i%2 == 0, token: 9, block: 1})
	}
	return r
}

func TestRecordSurvivesEncoding(t *testing.T) {
	for _, r := range []record{{key: "k"}, sampleRecord(0), sampleRecord(3), sampleRecord(500)} {
		got, err := decodeRecord(r.append(nil))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("record %+v became %+v, %v", r, got, err)
		}
	}
}

// TestTornWriteLeavesOldRecord cuts every write of a key's file short, at every byte.
func TestTornWriteLeavesOldRecord(t *testing.T) {
	d := &directory{keys: t.TempDir() + "/", fileMode: 0o600}
	var buf [2 * keyPlace]byte
	load := func() (k keyFile) {
		t.Helper()
		if err := d.loadKey(&k, "k", buf[:]); err != nil {
			t.Fatal(err)
		}
		return k
	}
	store := func(k *keyFile) {
		t.Helper()
		var scratch []byte
		if err := d.storeKey(k, &scratch); err != nil {
			t.Fatal(err)
		}
		k.close()
	}
	path := d.keys + keyName("k")
	var before []byte
	for token := range uint64(4) { // both places, each of them new and used
		k := load()
		k.record.holder = &party{owner: "o", token: token + 1, until: 1}
		store(&k)
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		offset := int(token%2) * keyPlace
		size := len(seal(nil, 0, k.record.append(nil)))
		for cut := offset; cut < offset+size; cut++ {
			torn := bytes.Clone(before)
			if cut > offset {
				torn = append(torn, make([]byte, max(0, cut-len(torn)))...)
				copy(torn[offset:cut], after[offset:cut])
			}
			if bytes.Equal(torn, after) {
				continue // the rest is what was there before
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			k := load()
			k.close()
			if h := k.record.holder; token == 0 && h != nil || token > 0 && (h == nil || h.token != token) {
				t.Fatalf("cut at %d of %d: holder %+v, want the one before, with token %d", cut, len(after), h, token)
			}
		}
		if err := os.WriteFile(path, after, 0o600); err != nil {
			t.Fatal(err)
		}
		before = after
	}
}

// TestLargeRecordsAreReplaced lets a queue outgrow its place, and shrink again.
func TestLargeRecordsAreReplaced(t *testing.T) {
	d := &directory{keys: t.TempDir() + "/", fileMode: 0o600}
	var buf [2 * keyPlace]byte
	var scratch []byte
	for i, waiters := range []int{0, 3, 200, 201, 1000, 2, 0, 300, 299, 1, 1, 0} {
		want := sampleRecord(waiters)
		want.holder.token = uint64(i)
		// An owner value may look like anything, also like a record.
		if waiters > 100 {
			want.queue[0].owner = strings.Repeat(string(seal(nil, 1<<60, []byte("x"))), 10)
		}
		var k keyFile
		if err := d.loadKey(&k, want.key, buf[:]); err != nil {
			t.Fatal(err)
		}
		k.record = want
		if err := d.storeKey(&k, &scratch); err != nil {
			t.Fatal(err)
		}
		k.close()
		if err := d.loadKey(&k, want.key, buf[:]); err != nil {
			t.Fatal(err)
		}
		k.close()
		if !reflect.DeepEqual(k.record, want) {
			t.Fatalf("step %d: a record with %d waiters became another", i, waiters)
		}
	}
	names, err := namesIn(d.keys)
	if err != nil || len(names) != 1 {
		t.Errorf("files %q, %v; want one", names, err)
	}
}

func FuzzRecord(f *testing.F) {
	for _, n := range []int{0, 2, 20} {
		r := sampleRecord(n)
		f.Add(r.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.append(nil))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%x: %+v became %+v, %v", b, r, again, err)
		}
	})
}

// FuzzKeyFile reads files with any content. Nothing that is not sealed may be taken for a record.
func FuzzKeyFile(f *testing.F) {
	r := sampleRecord(1)
	one := seal(nil, 1, r.append(nil))
	two := append(append(bytes.Clone(one), make([]byte, keyPlace-len(one))...), seal(nil, 2, r.append(nil))...)
	big := sampleRecord(100)
	f.Add(one)
	f.Add(two)
	f.Add(one[:10])
	f.Add(seal(nil, 5, big.append(nil)))
	path := f.TempDir() + "/file"
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		k := keyFile{}
		var err error
		if k.fd, err = openFile(path, os.O_RDONLY, 0); err != nil {
			t.Fatal(err)
		}
		defer k.close()
		var buf [2 * keyPlace]byte
		payload, err := k.read(buf[:])
		if err == nil && payload != nil && !bytes.Contains(b, seal(nil, k.sequence, payload)) {
			t.Errorf("%x is read as %x", b, payload)
		}
	})
}

func FuzzMessage(f *testing.F) {
	m := message{kind: messageGranted, claim: claimHash("k", "o"), token: 7, block: 64}
	f.Add(m.append(nil))
	f.Add(append(m.append(nil), m.append(nil)[:20]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			m, rest, ok := decodeMessage(b)
			if !ok {
				if len(rest) >= messageSize {
					t.Errorf("%d bytes are kept for ever", len(rest))
				}
				return
			}
			if !bytes.Equal(m.append(nil), b[:messageSize]) || len(rest) != len(b)-messageSize {
				t.Errorf("%x is read as %+v", b, m)
			}
			b = rest
		}
	})
}

func FuzzMemberName(f *testing.F) {
	f.Add(memberID{1}.String() + wakeSuffix)
	f.Fuzz(func(t *testing.T, name string) {
		if id, suffix, ok := parseMember(name); ok && id.String()+suffix != name {
			t.Errorf("%q is read as %v and %q", name, id, suffix)
		}
	})
}
