package look_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// changing is a backend whose one key changes from one look to the next.
type changing struct {
	still
	next []driver.Entry
}

func (c *changing) Inspect(context.Context, string) (driver.Entry, error) {
	e := c.next[0]
	if len(c.next) > 1 {
		c.next = c.next[1:]
	}
	return e, nil
}

// TestLeaks: a lease in its last millisecond shows no end, and is no leak. A key that shows no end
// again is one.
func TestLeaks(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := id + "/" + here + "/" + strconv.Itoa(dead.Process.Pid) + "/"
	lives := driver.NewOwner(driver.OwnerSuffix("me"))
	held := func(owner string, lease time.Duration) driver.Entry {
		return driver.Entry{Key: "k", Holder: driver.Party{Owner: owner, ExpiresIn: lease,
			Endless: lease == 0}}
	}
	unknown := driver.Entry{Key: "k", Holder: driver.Party{Owner: lives}} // as on etcd
	shared := driver.Entry{Key: "k", Sharers: []driver.Party{{Owner: gone, ExpiresIn: 1},
		{Owner: lives, ExpiresIn: 1}, {Owner: "foreign", Endless: true}}}
	waited := driver.Entry{Key: "k", Holder: driver.Party{Owner: lives, ExpiresIn: 1},
		Waiters: []driver.Party{{Owner: lives, ExpiresIn: 1}, {Owner: gone, ExpiresIn: 1}}}
	for what, test := range map[string]struct {
		looks []driver.Entry
		want  []string
	}{
		"a dead waiter":            {[]driver.Entry{waited}, []string{"waiter-gone " + gone}},
		"an end that is not known": {[]driver.Entry{unknown}, nil},
		"a lease":                  {[]driver.Entry{held(lives, 1)}, nil},
		"one without an end":       {[]driver.Entry{held("x", 0)}, []string{"no-expiry x"}},
		"a lease that just ends":   {[]driver.Entry{held(lives, 0), {Key: "k"}}, nil},
		"one that is just renewed": {[]driver.Entry{held(lives, 0), held(lives, 1)}, nil},
		"one that the next follows": {[]driver.Entry{held(lives, 0), held("x", 0)},
			nil},
		"a process that is gone": {[]driver.Entry{held(gone, 1)}, []string{"process-gone " + gone}},
		"both": {[]driver.Entry{held(gone, 0)},
			[]string{"no-expiry " + gone, "process-gone " + gone}},
		"some who share": {[]driver.Entry{shared},
			[]string{"no-expiry foreign", "process-gone " + gone}},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := &look.View{Backend: &changing{next: test.looks}, Patience: time.Hour}
			k, err := v.Inspect(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			leaks, err := v.Leaks(t.Context(), []look.Key{k})
			var got []string
			for _, l := range slices.Concat(leaks...) {
				got = append(got, string(l.Why)+" "+l.Party.Value)
				isPrintable(t, l.String())
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, %v; want %q", what, got, err, test.want)
			}
		})
	}
}

// TestLeaksOfManyKeys: all keys that seem to have no end are looked at again together. One by one,
// a hundred thousand of another library would take a quarter of an hour.
func TestLeaksOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &look.View{Backend: &endless{}, Patience: time.Hour}
		keys := make([]look.Key, 1000)
		for i := range keys {
			key, err := v.Inspect(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = key
		}
		begin := time.Now()
		leaks, err := v.Leaks(t.Context(), keys)
		if err != nil || len(slices.Concat(leaks...)) != len(keys) {
			t.Errorf("%d leaks, %v", len(slices.Concat(leaks...)), err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// mortal is a backend that fails after a number of looks. Leaks looks at several keys at once.
type mortal struct {
	endless
	looks atomic.Int64
}

func (m *mortal) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if m.looks.Add(-1) < 0 {
		return driver.Entry{}, errors.New("it is gone")
	}
	return m.endless.Inspect(ctx, key)
}

// TestLeaksBeforeAFailure: what was found is not lost when the backend fails after it.
func TestLeaksBeforeAFailure(t *testing.T) {
	backend := &mortal{}
	backend.looks.Store(3)
	v := &look.View{Backend: backend, Patience: time.Hour}
	var keys []look.Key
	for _, name := range []string{"a", "b"} {
		key, err := v.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	keys = append(keys, look.Key{Holders: []look.Party{{Lease: 1, Life: look.Gone}}})
	leaks, err := v.Leaks(t.Context(), keys)
	if err == nil || len(leaks[0])+len(leaks[1]) != 1 || len(leaks[2]) != 1 {
		t.Errorf("%v, %v", leaks, err)
	}
}

// TestMemory: if two looks find the same owner, the lock is known to be held since the first look,
// even if that was read from the file. With a new owner the time begins anew. What the backend says
// counts more.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := func(key, owner string) look.Key {
		return look.Key{Full: key, Holders: []look.Party{{Owner: driver.Owner{Value: owner}}}}
	}
	known := held("known", "k")
	known.Holders[0].Since = begin
	for i, run := range []struct {
		at    time.Duration
		keys  []look.Key
		fails bool // the look ended early
		want  []string
	}{
		{0, []look.Key{held("a", "x"), held("b", "y"), known}, false, nil},
		{2 * time.Hour, []look.Key{held("a", "x"), held("b", "z"), known}, false,
			[]string{"x 2h0m0s", "k 2h0m0s"}},
		{3 * time.Hour, []look.Key{held("a", "x")}, true, []string{"x 3h0m0s"}},
		{4 * time.Hour, []look.Key{held("b", "z"), held("ax", "")}, false, []string{"z 2h0m0s"}},
		{5 * time.Hour, []look.Key{held("a", "x"), held("a", "x")}, false, nil},
	} {
		m, err := look.Remember(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range run.keys {
			for _, l := range k.TooLong(time.Hour, m, begin.Add(run.at)) {
				got = append(got, fmt.Sprint(l.Party.Value, " ", l.For))
				isPrintable(t, l.String())
			}
		}
		if !slices.Equal(got, run.want) {
			t.Errorf("run %d: %q, want %q", i, got, run.want)
		}
		if err := m.Save(!run.fails); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"another program's":            "is another program's file: name one that is holdfast's own",
		"holdfast leaks 1\nnonsense\n": "is damaged: remove it",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := look.Remember(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Remember of %q: %v; want %q", text, err, want)
		}
	}
}

// A file takes the place of what it replaces. So only a file may be named: a device is in danger as
// /dev/null is by somebody who wants nothing to be kept.
func TestRememberInNoDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	m, err := look.Remember(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, path); err != nil { // no device is in danger
		t.Fatal(err)
	}
	if _, err := look.Remember(path); err == nil ||
		!strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("Remember in a device: %v", err)
	}
	if err := m.Save(true); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("Save in a device that was not there before: %v", err)
	}
}
