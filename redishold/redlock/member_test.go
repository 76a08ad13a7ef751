package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// Clients that are configured for another number of servers, or another guard, are refused by those
// that belong to a set already, with an error that names both.
func TestServersTakePartForOneSet(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	seven := &cluster{servers: append(c.servers[:5:5], redistest.Start(t), redistest.Start(t))}
	held := newClaim("k", longTTL)
	a := c.client(t, calm)
	a.hold(held)
	a.healthy() // all five have been asked
	for query, k := range map[string]*client{
		"5 nodes, quorum 3, guard 1m0s": c.client(t,
			"restart-guard=1m&node-timeout=3s&durable=always"),
		"7 nodes, quorum 4, guard 0s": seven.client(t, calm),
	} {
		if strings.Contains(query, "guard 1m0s") {
			for _, s := range c.servers {
				s.Do(t, "CONFIG", "SET", "appendfsync", "always", "appendonly", "yes")
			}
		}
		_, err := k.ask(newClaim("k", longTTL))
		var set *driver.SetError
		if !errors.As(err, &set) || set.Want.String() != query+", set test" ||
			set.Have.String() != "5 nodes, quorum 3, guard 0s, set test" {
			t.Errorf("a client of %s: %v", query, err)
		}
	}
	a.renew(held, driver.Held)
	a.release(held, driver.Held)
}

// An operator moves the servers to another set by Adopt. Clients of the old one are refused from
// then on.
func TestAdoptMovesServers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	five := &cluster{servers: append(c.servers[:3:3], redistest.Start(t), redistest.Start(t))}
	old := c.client(t, calm)
	first := newClaim("k", time.Second+3*time.Second)
	old.hold(first)
	old.release(first, driver.Held)
	k := five.client(t, calm)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := k.Adopt(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	second := newClaim("k", longTTL)
	k.granted(second)
	if _, err := old.ask(newClaim("k", longTTL)); !errors.As(err, new(*driver.SetError)) ||
		!driver.Permanent(err) {
		t.Errorf("a client of the old set: %v", err)
	}
	k.release(second, driver.Held)
}

// Two operators adopt at once: one puts server 3 in the place of server 2, the other one takes that
// back. The first one finds out, and leaves all servers to the second.
func TestAdoptionsAtOnceOfServers(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	set := func(name string, servers ...int) *client {
		var hosts []string
		for _, i := range servers {
			hosts = append(hosts, c.servers[i].Addr)
		}
		return &client{Quorum: open(t, "redlock://"+strings.Join(hosts, ",")+"?set="+name+"&"+calm),
			t: t}
	}
	claim := newClaim("k", longTTL)
	old := set("old", 0, 1, 2)
	old.hold(claim)
	old.healthy()
	changed, back := set("new", 0, 1, 3), set("old", 2, 1, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- changed.Adopt(ctx, 5*time.Second) }()
	testserver.Eventually(t, "the first adoption waits", func() error {
		text := c.servers[1].String(t, "GET", "holdfast:s")
		return testserver.Not(strings.HasPrefix(text, "3/2/0/=old/moving/"),
			"server 1 belongs to %s", text)
	})
	if err := back.Adopt(ctx, time.Second); err != nil {
		t.Errorf("taking it back: %v", err)
	}
	old.renew(claim, driver.Held)
	// The second one may not be done with all servers when the first one goes on.
	if err := <-first; err == nil ||
		!strings.Contains(err.Error(), "not to none, as it is being moved out of 3 nodes") &&
			!strings.Contains(err.Error(), "is being moved by another change of its set") {
		t.Errorf("the first adoption: %v; want an error that says what has become of a server", err)
	}
	old.renew(claim, driver.Held)
	if _, err := changed.ask(newClaim("k", longTTL)); !errors.As(err, new(*driver.SetError)) {
		t.Errorf("a client of the new set: %v", err)
	}
}

// A server is put in the place of another, with neither the number nor the guard changed. Clients
// that list others, in whatever order, are refused, with an error that says both lists, until the
// servers are adopted; and then those with the old list are. A name for the set prevails over the
// addresses.
func TestServersKnowEachOther(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	client := func(query string, servers ...int) (*client, string) {
		var hosts []string
		for _, i := range servers {
			hosts = append(hosts, c.servers[i].Addr)
		}
		k := &client{Quorum: open(t, "redlock://"+strings.Join(hosts, ",")+"?"+query), t: t}
		slices.Sort(hosts)
		return k, strings.Join(hosts, ",")
	}
	old, oldList := client(calm, 0, 1, 2)
	claim := newClaim("k", longTTL)
	old.hold(claim)
	old.healthy()
	turned, _ := client(calm, 2, 0, 1)
	turned.busy(newClaim("k", longTTL))
	old.release(claim, driver.Held)

	changed, newList := client(calm, 0, 3, 1)
	_, err := changed.ask(newClaim("k", longTTL))
	if !errors.As(err, new(*driver.SetError)) || !strings.Contains(err.Error(), "set "+oldList) ||
		!strings.Contains(err.Error(), "set "+newList) {
		t.Errorf("a client of other servers: %v; want an error with %s and %s", err,
			oldList, newList)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := changed.Adopt(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	changed.hold(claim)
	changed.release(claim, driver.Held)
	if _, err := old.ask(newClaim("k", longTTL)); !errors.As(err, new(*driver.SetError)) {
		t.Errorf("a client of the old servers: %v", err)
	}
	named, _ := client(calm+"&set=blue", 0, 3, 1)
	if _, err := named.ask(newClaim("k", longTTL)); err == nil ||
		!strings.Contains(err.Error(), "set blue") {
		t.Errorf("a client with a name for the set: %v", err)
	}
}

// An adoption needs every server. Its error names the one that is down, once.
func TestAdoptNamesTheServer(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, calm)
	k.healthy()
	c.servers[1].Kill()
	ctx, cancel := limit()
	defer cancel()
	err := k.Adopt(ctx, time.Second)
	name := c.servers[1].Addr + ": "
	if err == nil || !strings.HasPrefix(err.Error(), name) ||
		strings.HasPrefix(err.Error(), name+name) {
		t.Errorf("Adopt: %v; want an error that begins with %s, once", err, name)
	}
}
