//go:build unix

package etcdhold_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// TestCheckFindsWhatIsAway: if there is no server at an endpoint, a finding names the endpoint.
// Check does not fail while another endpoint answers.
func TestCheckFindsWhatIsAway(t *testing.T) {
	away := "unix://" + filepath.Join(t.TempDir(), "away:0")
	for _, endpoints := range [][]string{{away, server.Endpoint()}, {server.Endpoint(), away}} {
		b := open(t, connect(t, func(c *clientv3.Config) { c.Endpoints = endpoints }))
		ctx, cancel := patience(t)
		found, err := b.Check(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		var nodes []string
		for _, f := range found {
			if f.Code == "unreachable" {
				nodes = append(nodes, f.Node)
			}
		}
		if !slices.Equal(nodes, []string{away}) {
			t.Errorf("of %q Check does not reach %q; want %q: %v", endpoints, nodes, away, found)
		}
	}
}

// TestCheckFindsAnAlarm: Check reports a full etcd, which refuses even to show the rights.
func TestCheckFindsAnAlarm(t *testing.T) {
	s, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	s.EndWith(t, func() string { return "the server with an alarm" })
	client := connect(t, func(c *clientv3.Config) { c.Endpoints = []string{s.Endpoint()} })
	ctx, cancel := patience(t)
	defer cancel()
	status, err := client.Status(ctx, s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId,
		Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, open(t, client)); !slices.Contains(strings.Fields(found), "alarm") {
		t.Errorf("Check finds %q; want an alarm", found)
	}
}
