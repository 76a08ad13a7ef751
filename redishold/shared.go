package redishold

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// New returns a Backend over a client that the application has already. It does not close it.
//
// What [Open] promises about order rests on one connection a server, which is not known of a client that was
// made elsewhere: it may have several, and makes new ones as it likes. So requests for one lock are sent one
// after the other, each when the one before it has come back, and an acquisition that arrives after its
// release in spite of that finds a mark which the release left for it (for a minute). That costs a few more
// commands than Open does, and notices take one more connection. Prefer Open where nothing speaks against it.
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
	if l.cluster {
		l.look()
	}
	return protocol.New(protocol.Shared(l), o), nil
}

// SharedOption sets an option of [New].
type SharedOption func(*protocol.Options)

// WithReplicas has each acquisition and renewal wait until that many replicas have confirmed it, for at most
// timeout. Default none. It is what the wait parameter of a URL does.
func WithReplicas(replicas int, timeout time.Duration) SharedOption {
	return func(o *protocol.Options) { o.Replicas, o.ReplicaTimeout = replicas, timeout }
}

// library is rueidis in the hands of somebody else.
type library struct {
	client  rueidis.Client
	cluster bool

	// table says which server serves which slot, as far as this is known: the client finds out for itself and
	// does not tell. It only serves to send together what goes to one server.
	table   atomic.Pointer[slotTable]
	looking atomic.Bool
}

type slotTable struct {
	servers [protocol.Slots]string
	at      time.Time
}

// tableAge is after how long the table is asked for again.
const tableAge = 30 * time.Second

// libraryNode is a server: of a cluster the one that serves the slot, as the client knows.
type libraryNode struct {
	client rueidis.Client
	slot   uint16 // protocol.Slots if it does not matter
	server string
}

func (l *library) Node(ctx context.Context, slot uint16) (protocol.Node, error) {
	if !l.cluster {
		return libraryNode{client: l.client, slot: protocol.Slots}, nil
	}
	table := l.table.Load()
	if table == nil || time.Since(table.at) > tableAge {
		l.look()
	}
	n := libraryNode{client: l.client, slot: slot}
	if table != nil {
		n.server = table.servers[slot]
	}
	if n.server == "" {
		n.server = strconv.Itoa(int(slot)) // on its own
	}
	return n, nil
}

// look asks for the table in the background.
func (l *library) look() {
	if !l.looking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.looking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), topologyPatience)
		defer cancel()
		entries, err := l.client.Do(ctx, l.client.B().ClusterSlots().Build()).ToArray()
		if err != nil {
			return
		}
		table := &slotTable{at: time.Now()}
		for i := range entries {
			if r, ok := parseSlotRange(&entries[i], ""); ok {
				for slot := r.first; slot <= r.last; slot++ {
					table.servers[slot] = r.address
				}
			}
		}
		l.table.Store(table)
	}()
}

func (l *library) Nodes(ctx context.Context) ([]protocol.Node, error) {
	if !l.cluster {
		return []protocol.Node{libraryNode{client: l.client, slot: protocol.Slots}}, nil
	}
	var nodes []protocol.Node
	for _, client := range l.client.Nodes() {
		role, err := client.Do(ctx, client.B().Role().Build()).ToArray()
		if err != nil {
			return nil, err
		}
		if name, _ := role[0].ToString(); name == "master" {
			nodes = append(nodes, libraryNode{client: client, slot: protocol.Slots})
		}
	}
	return nodes, nil
}

func (l *library) Cluster() bool { return l.cluster }

// Reload leaves redirections to the client, which follows them itself.
func (l *library) Reload() { l.look() }

func (l *library) NotSent(error) bool { return false }

func (n libraryNode) Pipeline(ctx context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	multi := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		multi[i] = n.client.B().Arbitrary(command...).Build()
		switch {
		case n.slot == protocol.Slots:
		case len(command) > 3 && strings.HasPrefix(command[0], "EVAL"):
			// By its own key: requests for several slots may be sent together.
			multi[i] = multi[i].SetSlot(command[3])
		default:
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

// Name is the server's address, or the slot if that is not known.
func (n libraryNode) Name() string { return n.server }

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

// subscribePause is how long a subscription that broke is left alone. Meanwhile waiters rely on their
// heartbeats.
const subscribePause = 200 * time.Millisecond
