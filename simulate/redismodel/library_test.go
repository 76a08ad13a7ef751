package redismodel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// A caller whose connection broke is told no reply, while the server carries out what was sent. The
// race detector sees a server that writes into what the caller reads.
func TestBrokenPipelineTellsNoReply(t *testing.T) {
	set := func(key string) protocol.Command { return protocol.Command{"SET", key, "x"} }
	for _, test := range []struct {
		name    string
		link    redismodel.Link
		cut     bool
		patient time.Duration
		keys    int // on the server, at the end
	}{
		{name: "cut before it arrives", cut: true, patient: time.Second, keys: 2},
		{name: "not answered in time", patient: 5 * time.Millisecond, keys: 2},
		{name: "cut behind the first", patient: time.Second, keys: 1,
			link: redismodel.Link{Cut: func(int) (int, bool) { return 1, true }}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.link.Request = func() time.Duration { return 10 * time.Millisecond }
				server := redismodel.New(redismodel.Options{})
				library := server.Library(test.link, func() time.Duration { return test.patient })
				if test.cut {
					time.AfterFunc(5*time.Millisecond, func() { library.Cut(true) })
				}
				replies := make([]protocol.Reply, 2)
				err := library.Pipeline(context.Background(),
					[]protocol.Command{set("a"), set("b")}, replies)
				if err == nil {
					t.Error("no error")
				}
				if replies[0].Kind != protocol.Nil || replies[1].Kind != protocol.Nil {
					t.Errorf("replies %v with the error %v; want none", replies, err)
				}
				time.Sleep(time.Minute)
				if keys := server.Keys(); len(keys) != test.keys {
					t.Errorf("the server has the keys %q; want %d", keys, test.keys)
				}
			})
		})
	}
}

// What was held up goes on as the same request, also if another client's connection was mended.
func TestStrandedRequestIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		requests := 0
		patience := func() time.Duration { return time.Minute }
		library := server.Library(redismodel.Link{
			Request: func() time.Duration { requests++; return time.Millisecond },
		}, patience)
		other := server.Library(redismodel.Link{}, patience)
		library.Hang(redismodel.Requests)
		answered := make(chan error)
		go func() {
			answered <- library.Pipeline(context.Background(),
				[]protocol.Command{{"SET", "a", "x"}}, make([]protocol.Reply, 1))
		}()
		time.Sleep(time.Second)
		other.Resume()
		time.Sleep(time.Second)
		if keys := server.Keys(); len(keys) > 0 {
			t.Errorf("the server has the keys %q of a client that hangs", keys)
		}
		library.Resume()
		if err := <-answered; err != nil || requests != 1 {
			t.Errorf("%v after %d requests; want an answer to one", err, requests)
		}
	})
}
