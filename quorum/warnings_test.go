package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// versioned is a node that says which version its server has.
type versioned struct {
	*memhold.Backend
	version string
}

func (v versioned) Version() string { return v.version }

// Servers of different major versions work, and Status and Check warn of them.
func TestDifferentVersions(t *testing.T) {
	for _, test := range []struct {
		versions []string
		want     []string
	}{
		{[]string{"7.0.15", "7.2.4", "7.0.15"}, nil},
		{[]string{"7.0.15", "8.0.1", ""},
			[]string{"servers of different major versions: node 1 has 7.0.15, node 2 has 8.0.1"}},
	} {
		bubble(t, func(t *testing.T) {
			var nodes []driver.Backend
			for _, version := range test.versions {
				nodes = append(nodes, versioned{memhold.New(), version})
			}
			q, err := quorum.New(nodes)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			status := q.Status()
			if got := status.Warnings(); !slices.Equal(got, test.want) {
				t.Errorf("%q: warnings %q, want %q", test.versions, got, test.want)
			}
			findings, err := q.Check(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range findings {
				if f.Code == "nodes" {
					found = append(found, strings.TrimSuffix(f.Summary, "."))
				}
			}
			if !slices.Equal(found, test.want) {
				t.Errorf("%q: found %q, want %q", test.versions, found, test.want)
			}
		})
	}
}

// distant is a node that is far away: the nth call takes as long as the nth delay says, and later
// ones as long as the last.
type distant struct {
	*memhold.Backend
	delays []time.Duration
}

func (d *distant) Belongs(ctx context.Context) (driver.Set, error) {
	time.Sleep(d.delays[0])
	d.delays = d.delays[min(1, len(d.delays)-1):]
	return d.Backend.Belongs(ctx)
}

// A node whose calls take more than a third of the node timeout is found. One that was slow once is
// not.
func TestCheckFindsDistantNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const limit = 10 * time.Millisecond // a third of the node timeout
		far := limit + time.Millisecond
		q, err := quorum.New([]driver.Backend{
			&distant{memhold.New(), []time.Duration{far}},
			&distant{memhold.New(), []time.Duration{far, far, far, far, limit}},
			&distant{memhold.New(), []time.Duration{0}},
		}, quorum.WithNodeTimeout(3*limit))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		findings, err := q.Check(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var found []driver.Finding
		for _, f := range findings {
			if f.Code == "round-trip" {
				found = append(found, f)
			}
		}
		if len(found) != 1 || found[0].Node != "node 1" || found[0].Severity != driver.Warning ||
			!strings.Contains(found[0].Summary, "takes 11ms, and the node timeout is 30ms") {
			t.Errorf("found %+v; want that node 1 is far away", found)
		}
	})
}

// overwritten is a node whose set somebody has overwritten, or which may not be read.
type overwritten struct {
	*memhold.Backend
	err error
}

func (o overwritten) Belongs(context.Context) (driver.Set, error) {
	return driver.Set{}, &driver.Error{Permanent: true, Err: o.err}
}

// A node that remembers what is no set has no vote, and that is a warning. If it may not be read
// what it remembers, that is a note.
func TestCheckOfASetThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, garbled := driver.ParseSet("x")
		q, err := quorum.New([]driver.Backend{memhold.New(), overwritten{memhold.New(), garbled},
			overwritten{memhold.New(), errors.New("NOPERM")}})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		findings, err := q.Check(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range findings {
			found = append(found, fmt.Sprint(f.Severity, f.Code, f.Node))
		}
		want := []string{fmt.Sprint(driver.Warning, "nodes", "node 2"),
			fmt.Sprint(driver.Note, "not-checked", "node 3")}
		if !slices.Equal(found, want) {
			t.Errorf("found %q; want %q: %+v", found, want, findings)
		}
	})
}

// mute is a node that does not answer questions about itself.
type mute struct{ *memhold.Backend }

func (m mute) Identity(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", &driver.Error{Err: ctx.Err()}
}

func (m mute) Check(ctx context.Context) ([]driver.Finding, error) {
	<-ctx.Done()
	return nil, &driver.Error{Err: ctx.Err()}
}

// TestCheckOfAMajorityThatIsMute: when most nodes hang, which is when people ask, Check says which
// ones, within the time that it has.
func TestCheckOfAMajorityThatIsMute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, err := quorum.New([]driver.Backend{memhold.New(), mute{memhold.New()},
			mute{memhold.New()}}, quorum.WithNames("a", "b", "c"))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		findings, err := q.Check(ctx)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("Check = %v; its context: %v", err, ctx.Err())
		}
		var failed []string
		for _, f := range findings {
			if f.Code == "node-failed" {
				failed = append(failed, f.Node)
			}
		}
		if !slices.Equal(failed, []string{"b", "c"}) {
			t.Errorf("failed are %q; want b and c: %+v", failed, findings)
		}
	})
}
