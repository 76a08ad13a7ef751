package quorum_test

import (
	"context"
	"slices"
	"strings"
	"testing"

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
