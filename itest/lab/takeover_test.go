//go:build unix

package lab

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// A replica that takes over has what its primary has answered, except while the two were cut off
// from each other. Both can be done again, the other way round.
func TestTakeOverForgetsWhatTheReplicaMissed(t *testing.T) {
	r := &run{config: Config{Nodes: 3, Cluster: true, Replicas: true, Persistence: Always,
		Dir: t.TempDir()}}
	t.Cleanup(func() { r.stop() })
	var err error
	if r.log, err = history.Create(r.config.Dir+"/log", ""); err != nil {
		t.Fatal(err)
	}
	if err := r.startCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	const key = "key1"
	shard := r.part(protocol.Slot(prefix + key))
	from, to := r.shard(shard)[0], r.shard(shard)[1]
	for _, kept := range []bool{true, false, true, false} {
		before := func() { send(t, from, kept, "OK", "SET", prefix+key, "value") }
		if err := r.takeOver(shard, before, !kept); err != nil {
			t.Fatal(err)
		}
		var want any
		if kept {
			want = "value"
		}
		send(t, to, false, want, "GET", prefix+key)
		from, to = to, from
		// Without this deletion, the replica would have a value in the next round that nobody wrote
		// in it.
		send(t, from, true, map[bool]any{true: int64(1), false: int64(0)}[kept], "DEL", prefix+key)
	}
}

// send sends the command, and waits until a replica has its effect if it is to be replicated.
func send(t *testing.T, n *Node, replicated bool, want any, command ...string) {
	t.Helper()
	client, err := (&redistest.Server{Addr: n.Addr}).Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	do := func(want any, command ...string) {
		t.Helper()
		if reply, err := client.Try(command...); err != nil || reply != want {
			t.Fatalf("%s: %q gives %v, %v; want %v", n.Name, command, reply, err, want)
		}
	}
	do(want, command...)
	if replicated {
		do(int64(1), "WAIT", "1", "0") // for what this connection has written, and nothing else
	}
}
