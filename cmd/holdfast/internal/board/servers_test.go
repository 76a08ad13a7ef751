package board_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// set is a backend of several servers.
type set struct {
	*backend
	nodes   []quorum.NodeStatus
	answers func(key string) []quorum.NodeEntry
}

// Status returns what the last calls for locks have found.
func (s *set) Status() quorum.Status { return quorum.Status{Need: 3, Nodes: s.nodes} }

// InspectNodes returns what each server says.
func (s *set) InspectNodes(_ context.Context, key string) ([]quorum.NodeEntry, error) {
	return s.answers(key), nil
}

// TestServers: for a set, the page has the state of each server as it answers now, and for one lock
// what each server says.
func TestServers(t *testing.T) {
	fails := func(permanent bool) error {
		return &driver.Error{Node: "n", Permanent: permanent, Err: errors.New("redis://u:hunter2@n")}
	}
	servers := []struct {
		state quorum.NodeState
		err   error
		want  string
	}{
		{quorum.Unasked, nil, "up"},
		{quorum.Down, nil, "up"},
		{quorum.Up, fails(false), "down"},
		{quorum.Up, fails(true), "refusing"},
		{quorum.Quarantined, nil, "quarantined"},
		{quorum.Duplicate, nil, "duplicate"},
	}
	many := new(set)
	for i, one := range servers {
		many.nodes = append(many.nodes,
			quorum.NodeStatus{Name: fmt.Sprint("n", i), State: one.state})
	}
	owners := []string{"theirs", "theirs", "", "", "mine", ""}
	many.answers = func(key string) (all []quorum.NodeEntry) {
		for i, one := range servers {
			e := quorum.NodeEntry{Node: fmt.Sprint("n", i), Err: one.err}
			if key == prefix+"nightly" && one.err == nil {
				e.Entry.Holder.Owner = owners[i]
			}
			all = append(all, e)
		}
		return all
	}
	over := func(o *board.Options) {
		many.backend = o.Backend.(*backend)
		o.Backend = many
		o.View = &look.View{Backend: many, Prefix: prefix, Patience: patience}
	}
	inBubble(t, over, func(t *testing.T, s *site) {
		s.acquire(driver.Claim{Key: prefix + "nightly", Owner: "mine", TTL: time.Hour}, driver.Held)
		v := s.watch().sees()
		if len(v.last.Nodes) != len(servers) || v.last.Need != 3 {
			t.Fatalf("servers: %+v", v.last.Nodes)
		}
		for i, n := range v.last.Nodes {
			if n.State != servers[i].want || (n.Trouble != "") != (servers[i].err != nil) ||
				strings.Contains(n.Trouble, "hunter2") {
				t.Errorf("server %d is %+v, want %s", i, n, servers[i].want)
			}
		}
		_, text := s.ask(http.MethodGet, "/lock?id="+idOf("nightly"), "")
		var d struct {
			Nodes []struct {
				Name, Trouble string
				Holders       []string
				Differs       bool
			}
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Nodes) != len(servers) {
			t.Fatal(err, text)
		}
		for i, n := range d.Nodes {
			if down := servers[i].err != nil; n.Differs != (!down && owners[i] != "mine") ||
				down != (n.Trouble != "") || strings.Contains(n.Trouble, "hunter2") {
				t.Errorf("server %d says %+v", i, n)
			}
		}
	})
}
