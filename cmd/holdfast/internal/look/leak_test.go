package look_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// TestLeaks: a lease in its last millisecond shows no end, and is no leak; what shows none again
// is.
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
		return driver.Entry{Key: "k", Holder: driver.Party{Owner: owner, ExpiresIn: lease}}
	}
	shared := driver.Entry{Key: "k", Sharers: []driver.Party{{Owner: gone, ExpiresIn: 1},
		{Owner: lives, ExpiresIn: 1}, {Owner: "foreign"}}}
	for what, test := range map[string]struct {
		looks []driver.Entry
		want  []string
	}{
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
				got = append(got, string(l.Why)+" "+l.Holder.Value)
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
