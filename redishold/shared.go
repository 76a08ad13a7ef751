package redishold

import (
	"context"
	"errors"
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

// New returns a Backend over a client that the application already has. The Backend does not close
// the client.
//
// With [Open] the order of requests rests on one connection per server. A client that was made
// elsewhere may have several connections, and makes new ones as it likes. So requests for one lock
// are sent one after the other, each when the one before it has returned. If one still arrives
// after a later one, the server ignores it: the later one has left a mark for a minute. That costs
// a few more commands than Open does, and notices take one more connection. Prefer Open if you can.
//
// New fails with ErrInvalid if client or an option is nil, or an option is out of range.
func New(client rueidis.Client, options ...CommonOption) (*Backend, error) {
	if client == nil {
		return nil, &driver.Error{Invalid: true,
			Err: errors.New(
				"redishold: client is nil: make one with rueidis.NewClient, or use Open")}
	}
	var o protocol.Options
	for i, option := range options {
		if option == nil {
			return nil, nilOption(i)
		}
		option.applyToNew(&o)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("redishold: %w", err)
	}
	l := &library{client: client, cluster: client.Mode() == rueidis.ClientModeCluster}
	if l.cluster {
		l.look()
	}
	return protocol.New(protocol.Shared(l), o), nil
}

// library is a rueidis client that the application owns.
type library struct {
	client    rueidis.Client
	cluster   bool
	unsharded atomic.Bool // its servers have no sharded channels

	// table says which server serves which slot, as far as is known. The client knows, but does not
	// tell. The table only serves to send commands for one server together.
	table   atomic.Pointer[slotTable]
	looking atomic.Bool
}

type slotTable struct {
	servers [protocol.Slots]string
	at      time.Time
}

// tableAge is how old the table may get before it is asked for again.
const tableAge = 30 * time.Second

// libraryNode is a server; of a cluster, the one that serves the slot by the client's word.
type libraryNode struct {
	client rueidis.Client
	slot   uint16 // protocol.Slots if it does not matter
}

func (l *library) Node(ctx context.Context, slot uint16) (protocol.Node, error) {
	if !l.cluster {
		return libraryNode{client: l.client, slot: protocol.Slots}, nil
	}
	table := l.table.Load()
	if table == nil || time.Since(table.at) > tableAge {
		l.look()
	}
	return libraryNode{client: l.client, slot: slot}, nil
}

// At is never called: the client follows redirections itself.
func (l *library) At(_ context.Context, address string) (protocol.Node, error) {
	return nil, fmt.Errorf("redirected to %s", address)
}

// Shard returns the server's address, or the slot if that is not known.
func (l *library) Shard(slot uint16) string {
	if !l.cluster {
		return ""
	}
	if table := l.table.Load(); table != nil && table.servers[slot] != "" {
		return table.servers[slot]
	}
	return strconv.Itoa(int(slot))
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

func (n libraryNode) Pipeline(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	multi := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		multi[i] = n.client.B().Arbitrary(command...).Build()
		switch {
		case n.slot == protocol.Slots:
		case len(command) > 3 && strings.HasPrefix(command[0], "EVAL"):
			// The slot is that of the command's own key, because requests for several slots may be
			// sent together.
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

// Sharded is true of a cluster, until one of its servers says that it has no sharded channels, as
// Redis 6.2 does.
func (l *library) Sharded() bool { return l.cluster && !l.unsharded.Load() }

func (l *library) Subscribe(ctx context.Context, channel string, hear func(string)) (stop func(),
	err error) {
	sharded := strings.Contains(channel, "{")
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
			if sharded {
				command = l.client.B().Ssubscribe().Channel(channel).Build()
			} else {
				command = l.client.B().Subscribe().Channel(channel).Build()
			}
			err := l.client.Receive(hooked, command, func(m rueidis.PubSubMessage) {
				hear(m.Message)
			})
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
		if text, ok := serverText(err); ok && sharded && strings.Contains(text, "unknown command") {
			l.unsharded.Store(true)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	return nil, err
}

// subscribePause is how long a subscription that broke is left alone. Meanwhile waiters hear of
// grants when they next ask.
const subscribePause = 200 * time.Millisecond
