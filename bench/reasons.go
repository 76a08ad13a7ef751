package main

import "strings"

const blpopDoesLess = "each handoff is a script that looks after the queue, and a push; " +
	"BLPOP is two plain commands, and no lock"

// reasons says why Holdfast is behind or misses a goal. scenario and subject are prefixes: of the
// scenario's name, and of the driver's name or the goal's text. The first match counts.
var reasons = []struct{ scenario, subject, text string }{
	{"etcd-latency", "p50 at most 0.7",
		"the Mutex, too, waits twice for etcd's log: for a Txn and for a delete. Nothing durable can " +
			"do with less. So both take the time of two bare Txns and that of the client"},
	{"etcd-latency", "p50 at most 1.15",
		"both write two entries to the log. Ours also have a second put for the token, a lease, and a " +
			"look at those who wait. That takes 540 us on top of 1,950 with two cores for client and " +
			"server, of which the client has 390"},
	{"etcd-handover", "p50 at most",
		"a handover writes one entry to the log, and a watch tells of it. The Mutex takes 100 ms only " +
			"if its watch begins in the past, as on a busy server; otherwise it takes 5 ms"},
	{"etcd-latency", "etcd",
		"ours have a second put for the token, and a look at those who wait; the Mutex has neither"},
	{"zookeeper-handover", "zookeeper",
		"the recipe deletes a node, and that is all that the next one has to know; ours writes in the same transaction who holds " +
			"the key now, with its token"},
	{"zookeeper-latency", "zookeeper",
		"ours also writes the record of the slot beside the node, in one transaction of two operations"},
	{"etcd-contended", "at least",
		"after 64 turns in memory a request asks whether another process waits, which takes as long as half a turn of the Mutex; " +
			"holdfast-etcd-1024 takes 1024 turns before it asks (WithCohort)"},
	{"postgres-latency", "p50 at most 1.3",
		"both wait twice for the disk. With a fixed wait in its place, our two functions, called by pgx and nothing else, take " +
			"1.3 x the updates, since they look at the queue, the guard and the counter; the same changes as two plain updates " +
			"take 1.1 x. The rest is the client: a request may outlive its caller's context, so it has a goroutine, and pgx " +
			"watches its time in another"},
	{"zookeeper-latency", "p50 at most",
		"the recipe, too, waits twice for the server's log. Ours also writes the record of the slot " +
			"beside the node. Its transactions of two operations take 1.3 ms a pair; a node alone takes 0.9"},
	{"", advisory,
		"an advisory lock is an entry in the memory of one PostgreSQL, tied to a connection: no lease, nothing to renew, no token, " +
			"a connection for every holder and every waiter, and gone with the server"},
	{"files-", flock,
		"the system call and nothing else: no lease, no token, no order among those who wait, and whoever has just released the lock may take it again, see jain"},
	{"command", flock,
		"a small program in C that makes one system call: no lease, no token, no order among those who wait; most of the rest is the start of a " +
			"larger program"},
	{"latency", "p50 at most",
		"a token is drawn and the queue looked at in the same round trip, so the server and the client do more for each " +
			"acquisition; on the loopback that is a good part of a round trip, and on a network with a delay it does not show"},
	{"latency", "redsync",
		"one plain SET and one script, without tokens and without a queue that waiters could be in"},
	{"latency", redisLock,
		"one script each, without tokens and without a queue that waiters could be in"},
	{"latency", rueidisLock,
		"two scripts, without tokens and without a queue that waiters could be in"},
	{"latency", redlockNode,
		"one script each, without tokens and without a queue; its spread shows two speeds, and which one a run gets depends on which " +
			"processors client and server happen to get"},
	{"throughput-1000", "",
		"a connection has room for 480 requests on their way, so it costs 384 KiB and not 901. Beyond " +
			"480 goroutines, each waits for room, with a timer of its own. With room for 2,000, a pair " +
			"took 17 us of the client instead of 30"},
	{"throughput", "at least 0.8",
		"the processors are full, and server and client do more for each acquisition: they draw a " +
			"token and look at the queue"},
	{"throughput", "at least 1.3",
		"the server does more for each acquisition: it has a token and a queue, and the peer's has " +
			"neither"},
	{"contended", "at least 100",
		"on some machines peers reach this number because one goroutine takes again what it has just " +
			"released, see jain. Holdfast passes the lock on each time, and two cores bound how fast " +
			"goroutines can wake each other"},
	{"contended", "without local", blpopDoesLess},
	{"processes", rueidisLock,
		"most locks go from one goroutine of a process to the next, on purpose, see locks per second; the row " +
			"holdfast-nocohort is without that"},
	{"processes", "without local", blpopDoesLess},
	{"processes", "with local handoff: longest",
		"a process keeps the lock for up to 64 turns, and the processes that work at that take the processors' time"},
	{"crowd", "without local",
		"each who waits says every second that it is still there; the slower the machine hands over, the more often it does so for each " +
			"lock that it gets"},
	{"handover", "p",
		"a release looks after the queue in a script and publishes the grant; BLPOP is a push and an answer, and no lock"},
	{"readers", "at least 1,000,000",
		"the processors are what is full: four processes share them with the server and with a thousand goroutines"},
	{"set", "p50 at most",
		"on the loopback, processor time is the bound: each further key is as many commands, tokens and looks at queues more, though in " +
			"one round trip. Seven more cost the server alone 100 us or more, and half of one key's time, " +
			"which is what they may cost, is less than 80. So a client that takes no time for them would " +
			"not reach the goal either; the scenario with a delay shows the round trips"},
	{"five-set", "p50 at most",
		"processor time is the bound: eight keys on five nodes are forty acquisitions. Seven more keys cost the five servers alone " +
			"750 us or more, which two processors cannot do in half of one key's time, 140 to 200 us"},
	{"permit-latency", "p50 at most",
		"a slot is a key of its own, so its name has to be made; and the semaphore keeps a list of its " +
			"slots"},
	{"permits", "at least 0.9",
		"all slots of a semaphore have one mutex and one list of those who wait, since a slot has to " +
			"come to the first of them in one step; sixteen keys have sixteen. With a backend in memory " +
			"and on one processor, permits are as fast as keys. On two, goroutines queue for the mutex, " +
			"and keep 1.0 processors at work, where those with keys keep 1.4. To hold the mutex for " +
			"half as long changed nothing any more"},
	{"held-", "client CPU",
		"each lock has a deadline of its own, a place in the order of due times, and a result that is " +
			"read for it alone. About a third of the rest is spent in the client library, which writes a " +
			"longer command"},
	{"five-latency", "p50 at most",
		"each node does more for each acquisition, as on one server, and the client compares five answers for the token"},
	{"five-", redsyncFast,
		"it does not wait for the nodes that it does not need, has no tokens to compare, and leaves keys on nodes that fail"},
	{"five-latency", "redsync", "it sends one plain SET to each node and has no tokens to compare"},
	{"five-throughput", "at least",
		"the processors are full: each node does more for each acquisition, and the client compares " +
			"five answers for the token"},
	{"five-throughput", "redsync", "it sends one plain SET to each node and has no tokens to compare"},
	{"five-one-killed", redsyncRueidis,
		"this client fails at once where nothing listens, so it works as with four nodes; it has no " +
			"tokens"},
	{"five-handover", "p50 at most",
		"a release is a round trip to a majority, the push of the grants by a majority another half, and they are compared as acquisitions are"},
}

func reason(scenario, subject string) string {
	for _, r := range reasons {
		if strings.HasPrefix(scenario, r.scenario) && strings.HasPrefix(subject, r.subject) {
			return r.text
		}
	}
	return ""
}
