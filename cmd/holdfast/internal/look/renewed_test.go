package look_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/memhold"
)

// TestRenewed: two looks at a lease tell whether its holder renews it. A look that is too short to
// tell says so, and a lock that has changed hands meanwhile is not taken for a renewed one.
func TestRenewed(t *testing.T) {
	for _, test := range []struct {
		ttl, again    time.Duration
		renews, other string
	}{
		{30 * time.Second, 20 * time.Second, "yes", "no"},
		{30 * time.Second, 12 * time.Second, "yes", "-"}, // others might renew later
		{30 * time.Second, time.Second, "-", "-"},
		// What remains is too blurred.
		{3600 * time.Millisecond, 2900 * time.Millisecond, "yes", "-"},
		{time.Hour, 40 * time.Minute, "yes", "no"},
	} {
		synctest.Test(t, func(t *testing.T) {
			backend := memhold.New()
			defer backend.Close()
			locker, err := holdfast.New(backend, holdfast.WithTTL(test.ttl))
			if err != nil {
				t.Fatal(err)
			}
			defer locker.Close()
			for key, options := range map[string][]holdfast.AcquireOption{"renews": nil,
				"other": {holdfast.WithoutRenewal()}} {
				if _, err := locker.Acquire(t.Context(), key, options...); err != nil {
					t.Fatal(err)
				}
			}
			changing, err := locker.Acquire(t.Context(), "changing")
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(test.again/2, func() {
				changing.Release(t.Context())
				locker.Acquire(t.Context(), "changing", holdfast.WithTTL(2*test.ttl))
			})
			got := make(map[string]string)
			v := &look.View{Backend: backend, Patience: time.Hour, Again: test.again}
			if err := v.List(t.Context(), "", func(keys []look.Key) error {
				for _, k := range keys {
					got[k.Text] = k.RowAgain(func(time.Time) time.Duration { return 0 })[6]
					json := strings.Contains(string(k.JSON(false, nil, strings.Clone)),
						`"renewed":"`+got[k.Text]+`"`)
					if json != (got[k.Text] != "-") {
						t.Errorf("%v: %s is not in JSON", test, got[k.Text])
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got["renews"] != test.renews || got["other"] != test.other ||
				got["changing"] != "-" {
				t.Errorf("%+v: %v", test, got)
			}
			if len(look.HeadAgain) != len(look.Head)+1 || look.HeadAgain[6] != "RENEWED" {
				t.Errorf("the head is %q", look.HeadAgain)
			}
		})
	}
}

// TestRenewedBySeveral: of several that share a lock, one that renews is enough: the lock does not
// end with the longest lease. It does only if nobody renews.
func TestRenewedBySeveral(t *testing.T) {
	type sharer struct {
		ttl    time.Duration
		renews bool
	}
	for _, test := range []struct {
		sharers []sharer
		want    string
	}{
		{[]sharer{{time.Hour, false}, {30 * time.Second, true}}, "yes"},
		{[]sharer{{40 * time.Second, false}, {30 * time.Second, true}}, "yes"},
		{[]sharer{{40 * time.Second, true}, {30 * time.Second, false}}, "yes"},
		{[]sharer{{40 * time.Second, false}, {35 * time.Second, false}}, "no"},
		{[]sharer{{time.Hour, false}, {40 * time.Second, false}}, "-"}, // one may renew later
	} {
		synctest.Test(t, func(t *testing.T) {
			backend := memhold.New()
			defer backend.Close()
			for _, s := range test.sharers {
				locker, err := holdfast.New(backend.Client(), holdfast.WithTTL(s.ttl))
				if err != nil {
					t.Fatal(err)
				}
				defer locker.Close()
				options := []holdfast.AcquireOption{holdfast.WithShared()}
				if !s.renews {
					options = append(options, holdfast.WithoutRenewal())
				}
				if _, err := locker.Acquire(t.Context(), "k", options...); err != nil {
					t.Fatal(err)
				}
			}
			v := &look.View{Backend: backend, Patience: time.Hour, Again: 25 * time.Second}
			if err := v.List(t.Context(), "", func(keys []look.Key) error {
				row := keys[0].RowAgain(func(time.Time) time.Duration { return 0 })
				if row[6] != test.want {
					t.Errorf("%+v: renewed %s; want %s", test.sharers, row[6], test.want)
				}
				keys[0].Colour(row)
				if yellow := row[6] != test.want; yellow != (test.want == "no") {
					t.Errorf("%+v: coloured %v", test.sharers, yellow)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
