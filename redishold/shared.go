package redishold

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// New returns a Backend over a client that the application has already. It does not close it.
//
// What [Open] promises about order rests on one connection a server, which is not known of a client that was made elsewhere: it may
// have several, and makes new ones as it likes. So requests for one lock are sent one after the other, each when the one before it
// has come back, and an acquisition that arrives after its release in spite of that finds a mark which the release left for it
// (for a minute). That costs a few more commands than Open does, and notices take one more connection. Prefer Open where
// nothing speaks against it.
//
// New fails with a permanent *driver.Error if client is nil.
func New(client rueidis.Client, options ...SharedOption) (*Backend, error) {
	if client == nil {
		return nil, &driver.Error{Permanent: true, Err: fmt.Errorf("redishold: client nil: make one with rueidis.NewClient, or use Open")}
	}
	var o protocol.Options
	for _, option := range options {
		option(&o)
	}
	l := &library{client: client, cluster: client.Mode() == rueidis.ClientModeCluster}
	return protocol.New(protocol.Shared(l), o), nil
}

// SharedOption sets an option of [New].
type SharedOption func(*protocol.Options)

// WithReplicas has each acquisition and renewal wait until that many replicas have confirmed it, for at most timeout. Default none. It is what
// the wait parameter of a URL does.
func WithReplicas(replicas int, timeout time.Duration) SharedOption {
	return func(o *protocol.Options) { o.Replicas, o.ReplicaTimeout = replicas, timeout }
}

// library is rueidis in the hands of somebody else.
type library struct {
	client  rueidis.Client
	cluster bool
}

// libraryNode is a server: of a cluster the one that serves the slot, as the client knows.
type libraryNode struct {
	client rueidis.Client
	slot   uint16 // protocol.Slots if it does not matter
}

func (l *library) Node(_ context.Context, slot uint16) (protocol.Node, error) {
	if !l.cluster {
		slot = protocol.Slots
	}
	return libraryNode{l.client, slot}, nil
}

func (l *library) Nodes(ctx context.Context) ([]protocol.Node, error) {
	if !l.cluster {
		return []protocol.Node{libraryNode{l.client, protocol.Slots}}, nil
	}
	var nodes []protocol.Node
	for _, client := range l.client.Nodes() {
		role, err := client.Do(ctx, client.B().Role().Build()).ToArray()
		if err != nil {
			return nil, err
		}
		if name, _ := role[0].ToString(); name == "master" {
			nodes = append(nodes, libraryNode{client, protocol.Slots})
		}
	}
	return nodes, nil
}

func (l *library) Cluster() bool { return l.cluster }

// Reload has nothing to do: the client follows redirections itself.
func (l *library) Reload() {}

func (l *library) NotSent(error) bool { return false }

func (n libraryNode) Pipeline(ctx context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	multi := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		multi[i] = n.client.B().Arbitrary(command...).Build()
		if n.slot < protocol.Slots {
			multi[i] = multi[i].SetSlot(protocol.Tag(n.slot))
		}
	}
	for i, result := range n.client.DoMulti(ctx, multi...) {
		reply, err := replyOfResult(result)
		if err != nil {
			return err
		}
		replies[i] = reply
	}
	return nil
}

func (l *library) Sharded() bool { return l.cluster }

// Name has each slot of a cluster be a server of its own: the client does not say which are served together.
func (n libraryNode) Name() string { return strconv.Itoa(int(n.slot)) }

func (l *library) Subscribe(ctx context.Context, channel string, hear func(string)) (stop func(), err error) {
	life, cancel := context.WithCancel(context.Background())
	confirmed := make(chan struct{})
	confirm := sync.OnceFunc(func() { close(confirmed) })
	failed := make(chan error, 1)
	go func() {
		hooked := rueidis.WithOnSubscriptionHook(life, func(s rueidis.PubSubSubscription) {
			if strings.HasSuffix(s.Kind, "subscribe") && !strings.Contains(s.Kind, "unsub") {
				confirm()
			}
		})
		for {
			var command rueidis.Completed
			if l.cluster {
				command = l.client.B().Ssubscribe().Channel(channel).Build()
			} else {
				command = l.client.B().Subscribe().Channel(channel).Build()
			}
			err := l.client.Receive(hooked, command, func(m rueidis.PubSubMessage) { hear(m.Message) })
			select {
			case failed <- err:
			default:
			}
			pause := time.NewTimer(subscribePause)
			select {
			case <-life.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
		}
	}()
	select {
	case <-confirmed:
		return cancel, nil
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	return nil, err
}

// subscribePause is how long a subscription that broke is left alone. Meanwhile waiters rely on their heartbeats.
const subscribePause = 200 * time.Millisecond
