package redishold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// sentinels know which server is the primary now.
type sentinels struct {
	config *config

	mu        sync.Mutex
	addresses []string // those of the URL, and those that they know
}

const (
	// sentinelPatience is how long to wait for the other Sentinels when one has answered. A
	// Sentinel that is cut off from the rest may answer first, and be wrong.
	sentinelPatience = 200 * time.Millisecond

	// troublePause is the least time between two looks at which server serves what.
	troublePause = 500 * time.Millisecond
)

func newSentinel(g *config) *single {
	s := &sentinels{config: g, addresses: slices.Clone(g.addresses)}
	n := &node{config: g, name: "primary " + g.primary, find: s.find,
		check: func(server *protocol.Server, _ bool) error {
			switch {
			case server.Cluster:
				return &driver.Error{Node: server.Name, Permanent: true,
					Err: errors.New("the server is part of a cluster: use redis+cluster://")}
			case server.Replica:
				// The Sentinels are not done yet, or the server's answer is out of date.
				return &driver.Error{Node: server.Name,
					Err: fmt.Errorf("named as primary, and still a replica of %s", server.Primary)}
			}
			return nil
		}}
	look := &occasional{pause: troublePause, run: func() { s.compare(n) }}
	n.trouble = look.ask
	return &single{config: g, node: n, stop: look.stop}
}

// compare gives up the connection if the Sentinels now name another primary. A server that hangs
// cannot say that it is no longer the primary.
func (s *sentinels) compare(n *node) {
	c := n.live.Load()
	if c == nil {
		return // the next call asks them anyhow
	}
	if address, err := s.find(context.Background()); err == nil && address != c.name {
		c.close(fmt.Errorf("the Sentinels name %s as primary", address))
	}
}

// find asks all Sentinels and returns the address that most of them name.
func (s *sentinels) find(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s.mu.Lock()
	addresses := slices.Clone(s.addresses)
	s.mu.Unlock()
	answers := make(chan sentinelAnswer, len(addresses))
	for _, address := range addresses {
		go func() { answers <- s.ask(ctx, address) }()
	}
	votes := make(map[string]int)
	best := ""
	var failure error
	var late <-chan time.Time
	for range addresses {
		select {
		case a := <-answers:
			if a.err != nil {
				if failure == nil || driver.Permanent(a.err) {
					failure = a.err
				}
				continue
			}
			s.learn(a.others)
			if votes[a.primary]++; votes[a.primary] > votes[best] {
				best = a.primary
			}
			if votes[best] > len(addresses)/2 {
				return best, nil
			}
			if late == nil {
				timer := time.NewTimer(sentinelPatience)
				defer timer.Stop()
				late = timer.C
			}
		case <-late:
			return best, nil
		}
	}
	if best == "" {
		return "", failure
	}
	return best, nil
}

type sentinelAnswer struct {
	primary string
	others  []string
	err     error
}

// ask asks one Sentinel, by a connection that is made for it: this is rare.
func (s *sentinels) ask(ctx context.Context, address string) (a sentinelAnswer) {
	option := s.config.client()
	option.InitAddress = []string{address}
	option.Username, option.Password = s.config.sentinelUsername, s.config.sentinelPassword
	option.SelectDB = 0
	option.DialCtxFn = s.config.dialer(ctx)
	client, err := rueidis.NewClient(option)
	if client != nil {
		defer client.Close()
	}
	var replies []rueidis.RedisResult
	if err == nil {
		replies = client.DoMulti(ctx,
			client.B().SentinelGetMasterAddrByName().Master(s.config.primary).Build(),
			client.B().SentinelSentinels().Master(s.config.primary).Build())
		err = replies[0].Error()
	}
	name := "sentinel " + address
	switch text, ok := serverText(err); {
	case rueidis.IsRedisNil(err):
		return sentinelAnswer{err: &driver.Error{Node: name, Permanent: true,
			Err: fmt.Errorf("knows no primary %q", s.config.primary)}}
	case ok:
		failure := protocol.ServerFailure(name, text, false)
		if protocol.IsServerError(failure, "NOAUTH") { // its words are about HELLO
			failure.Err = fmt.Errorf("the Sentinel wants a password, which is missing in the URL, as "+
				"sentinel-password: %w", failure.Err)
		}
		return sentinelAnswer{err: failure}
	case err != nil:
		return sentinelAnswer{err: dialFailure(name, err)}
	}
	host, _ := replies[0].AsStrSlice()
	if len(host) != 2 {
		return sentinelAnswer{err: &driver.Error{Node: name,
			Err: fmt.Errorf("names the primary as %q", host)}}
	}
	a.primary = net.JoinHostPort(host[0], host[1])
	others, _ := replies[1].ToArray()
	for _, other := range others {
		if fields, err := other.AsStrMap(); err == nil {
			a.others = append(a.others, net.JoinHostPort(fields["ip"], fields["port"]))
		}
	}
	return a
}

// learn keeps the addresses of other Sentinels, for when those of the URL are gone.
func (s *sentinels) learn(others []string) {
	const most = 16
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range others {
		if len(s.addresses) < most && !slices.Contains(s.addresses, other) {
			s.addresses = append(s.addresses, other)
		}
	}
}
