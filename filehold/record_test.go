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
	r := record{key: "key\x00\xff", holders: []*party{{owner: "holder", member: memberID{1, 2},
		until: 12345, token: 1 << 52, block: 64}}}
	for i := range waiters {
		r.queue = append(r.queue, &party{owner: fmt.Sprint("waiter", i), member: memberID{3},
			until: 1 << 60, ticket: uint64(i + 1), arrived: i%2 == 0,
			shared: i%3 == 0, token: 9, block: 1})
	}
	return r
}

func sharedRecord() record {
	r := sampleRecord(2)
	r.holders = []*party{{owner: "a", token: 7, block: 1, shared: true},
		{owner: "b", member: memberID{9}, until: 5, token: 8, block: 2, shared: true,
			arrived: true, ticket: 3}}
	return r
}

// TestRecordOfOneWriter: a record in which one holds the key alone beside others is damaged.
func TestRecordOfOneWriter(t *testing.T) {
	for i := range 2 {
		r := sharedRecord()
		r.holders[i].shared = false
		if got, err := decodeRecord(r.encode()); err == nil {
			t.Errorf("holder %d holds alone: read as %+v", i, got)
		}
	}
}

func TestRecordSurvivesEncoding(t *testing.T) {
	for _, r := range []record{{key: "k"}, sampleRecord(0), sampleRecord(3), sampleRecord(500),
		sharedRecord()} {
		got, err := decodeRecord(r.encode())
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("record %+v became %+v, %v", r, got, err)
		}
	}
}

// lockAndLoad reads the file of a key.
func lockAndLoad(t *testing.T, d *directory, key string) (k keyFile) {
	t.Helper()
	k, err := d.lockKey(keyName(key), true, "", lockFile)
	if err == nil {
		err = k.load(new([]byte))
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func storeAndClose(t *testing.T, k *keyFile) {
	t.Helper()
	if err := k.store(); err != nil {
		t.Fatal(err)
	}
	k.close()
}

// TestTornWriteLeavesOldRecord cuts every write of a key's file short, at every byte: of records
// that fit into the first two places, and of larger ones.
func TestTornWriteLeavesOldRecord(t *testing.T) {
	d := &directory{keys: t.TempDir() + "/", fileMode: 0o600}
	path := d.keys + keyName("k")
	var before []byte
	// each place of each size, new and used
	for step, waiters := range []int{0, 0, 0, 0, 20, 20, 0, 20, 200, 0} {
		k := lockAndLoad(t, d, "k")
		k.record = sampleRecord(waiters)
		k.record.key = "k"
		k.record.holders[0].token = uint64(step + 1)
		sealed := seal(k.sequence+1, k.record.encode())
		at, _ := place(len(sealed), k.sequence+1)
		offset := int(at)
		storeAndClose(t, &k)
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		stride := 1 + len(sealed)/200
		for cut := offset; cut < offset+len(sealed); cut += stride {
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
			k := lockAndLoad(t, d, "k")
			k.close()
			if h := k.record.longest(); step == 0 && h != nil || step > 0 &&
				(h == nil || h.token != uint64(step)) {
				t.Fatalf("step %d, cut at %d of %d: holder %+v, want the one before", step, cut,
					len(after), h)
			}
		}
		if err := os.WriteFile(path, after, 0o600); err != nil {
			t.Fatal(err)
		}
		before = after
	}
}

// TestQueueOutgrowsItsPlace lets a queue outgrow its place, and shrink again. The file stays the
// same one: its lock is the key's.
func TestQueueOutgrowsItsPlace(t *testing.T) {
	d := &directory{keys: t.TempDir() + "/", fileMode: 0o600}
	var file fileID
	for i, waiters := range []int{0, 3, 200, 201, 1000, 2, 0, 300, 299, 1, 1, 0} {
		want := sampleRecord(waiters)
		want.holders[0].token = uint64(i)
		// An owner value may look like anything, also like a record.
		if waiters > 100 {
			want.queue[0].owner = strings.Repeat(string(seal(1<<60, []byte("x"))), 10)
		}
		k := lockAndLoad(t, d, want.key)
		st, err := statOpen(k.fd)
		if err != nil || i > 0 && idOf(&st) != file {
			t.Fatalf("step %d: another file: %v", i, err)
		}
		file = idOf(&st)
		k.record = want
		storeAndClose(t, &k)
		k = lockAndLoad(t, d, want.key)
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
	shared := sharedRecord()
	f.Add(shared.encode())
	for _, n := range []int{0, 2, 20} {
		r := sampleRecord(n)
		f.Add(r.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%x: %+v became %+v, %v", b, r, again, err)
		}
	})
}

// FuzzKeyFile reads files with any content. Nothing that is not sealed may be taken for a record.
func FuzzKeyFile(f *testing.F) {
	r := sampleRecord(1)
	one := seal(1, r.encode())
	two := append(append(bytes.Clone(one), make([]byte, keyPlace-len(one))...),
		seal(2, r.encode())...)
	big := sampleRecord(100)
	f.Add(one)
	f.Add(two)
	f.Add(one[:10])
	f.Add(append(make([]byte, 2*keyPlace), seal(5, big.encode())...))
	path := f.TempDir() + "/file"
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		k := keyFile{size: int64(len(b))}
		var err error
		if k.fd, err = openFile(path, os.O_RDONLY, 0); err != nil {
			t.Fatal(err)
		}
		defer k.close()
		payload, err := k.read(new([]byte))
		if err == nil && payload != nil && !bytes.Contains(b, seal(k.sequence, payload)) {
			t.Errorf("%x is read as %x", b, payload)
		}
	})
}

func FuzzMemberName(f *testing.F) {
	f.Add(memberID{1}.String() + joiningSuffix)
	f.Fuzz(func(t *testing.T, name string) {
		if id, ok := parseMember(name); ok && id.String() != name &&
			id.String()+joiningSuffix != name {
			t.Errorf("%q is read as %v", name, id)
		}
	})
}
