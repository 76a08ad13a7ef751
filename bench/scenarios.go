package main

import (
	"fmt"
	"slices"
)

// Metrics of several scenarios.
var (
	secondRound   = metric{"second", "% of pairs", -1, 2}
	clientTime    = metric{"client", "us/pair", -1, 1}
	serverTime    = metric{"server", "us/pair", -1, 1}
	handoverTimes = []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"samples", "", 0, 0}}
	pairsMetrics  = []metric{{"pairs", "/s", 1, 0}, {"p50", "us", -1, 0}, {"p99", "us", -1, 0},
		clientTime, serverTime}
	fileMetrics = []metric{{"handoffs", "/s", 1, 0}, {"locks", "/s", 1, 0},
		{"wait", "ms", -1, 2}, {"jain", "", 1, 3}, {"p50", "ms", -1, 2}, {"p99", "ms", -1, 2},
		{"max", "ms", -1, 2}}
	processMetrics = append(slices.Clip(fileMetrics), metric{"server", "us/lock", -1, 1})
	runMetrics     = []metric{{"runs", "/s", 1, 0}, {"p50", "ms", -1, 2}, {"p99", "ms", -1, 2},
		{"cpu", "ms/run", -1, 2}}
)

// Drivers of several scenarios.
var (
	uncontended     = slices.Concat([]string{ours, oursGoRedis}, floors, singlePeers)
	contenders      = slices.Concat([]string{ours, oursAlone, oursGoRedis, blpop}, singlePeers)
	nodesPeers      = []string{redsyncFast, redsyncGoRedis, redsyncRueidis}
	nodesPairs      = slices.Concat([]string{ours}, floors, nodesPeers)
	nodesContenders = slices.Concat([]string{ours, oursAlone}, nodesPeers)
	runners         = []string{ours, oursRedis, bare, flock, etcdctl}
)

func allScenarios(p plan) []*scenario {
	const inside, five = "nothing to do inside", 5
	fewer := max(1, p.rounds-1)
	contending := fmt.Sprintf("one key, %d processes of %d goroutines, ", p.workers, p.each)
	all := []*scenario{{
		name: "latency", title: "uncontended acquire and release, one goroutine",
		drivers: slices.Concat(uncontended, []string{etcdMutex, advisory, redisPy, redlockNode}),
		floor:   floor, measure: pairs(load{1, p.warm, p.counted}),
		metrics: []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, {"allocs", "/pair", -1, 1},
			{"reads", "/pair", -1, 2},
			{"commands", "/pair", -1, 1}, {"inner", "/pair", -1, 1}, {"in", "B/pair", -1, 0},
			{"out", "B/pair", -1, 0}, serverTime, clientTime},
		goals: []goal{
			ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost, 1.15),
			valueGoal("one round trip each for acquire and release: reads of the server per pair",
				"reads", ours, atMost, 2.02),
			valueGoal("at most 14 allocations per pair", "allocs", ours, atMost, 14.05),
		},
	}}
	for _, n := range p.parallel {
		all = append(all, throughput(n))
	}
	all = append(all, []*scenario{{
		name: "contended", title: fmt.Sprintf("one key, one process, %d goroutines, %s",
			p.contenders, inside),
		drivers: slices.Concat(contenders, []string{etcdMutex, advisory}), floor: blpop,
		measure: contendedHere,
		metrics: []metric{{"locks", "/s", 1, 0}, {"jain", "", 1, 3}, {"p50", "us", -1, 1},
			{"p99", "us", -1, 1}, {"max", "us", -1, 0}},
		goals: []goal{
			ratioGoal("at least 100 x the best peer", "locks", ours, bestOf, atLeast, 100),
			valueGoal("Jain index at least 0.95", "jain", ours, atLeast, 0.95),
			ratioGoal("without local handoff at least 0.9 x BLPOP", "locks", oursAlone, blpop,
				atLeast, 0.9),
		},
	}, {
		name: "processes", title: contending + inside,
		drivers: slices.Concat(contenders, []string{etcdMutex, advisory}), floor: blpop,
		measure: contended(0), metrics: processMetrics,
		goals: []goal{
			ratioGoal("without local handoff: handoffs between processes at least 0.9 x BLPOP",
				"handoffs", oursAlone, blpop, atLeast, 0.9),
			ratioGoal("with local handoff: locks at least 20 x those without", "locks", ours,
				oursAlone, atLeast, 20),
			ratioGoal("with local handoff: longest wait of any process at most twice that without",
				"wait", ours, oursAlone, atMost, 2),
		},
	}, {
		name: "handover", title: "from the call of release to the next holder, in another process",
		drivers: []string{ours, oursGoRedis, blpop, rueidisLock, redsyncRueidis, etcdMutex,
			advisory}, floor: blpop, measure: handovers, metrics: handoverTimes,
		goals: []goal{
			ratioGoal("p50 at most 1.2 x BLPOP", "p50", ours, blpop, atMost, 1.2),
			ratioGoal("p99 no worse than BLPOP", "p99", ours, blpop, atMost, 1),
		},
	}, {
		name: "work", title: contending + fmt.Sprintf("%v inside", p.work),
		drivers: slices.Concat(contenders, []string{etcdMutex, advisory}), floor: blpop,
		rounds: fewer, measure: contended(p.work),
		metrics: append([]metric{{"held", "% of the time", 1, 1}}, processMetrics...),
	}}...)
	all = append(all, sharing(p)...)
	all = append(all, sets(p)...)
	all = append(all, semaphores(p)...)
	for _, n := range p.crowds {
		all = append(all, &scenario{
			name:    fmt.Sprintf("crowd-%d", n),
			title:   fmt.Sprintf("%d waiters on one key over %d processes", n, p.workers),
			drivers: []string{ours, oursAlone, rueidisLock}, rounds: 1, measure: crowd(n),
			metrics: []metric{{"commands", "/lock", -1, 2}, {"per-handoff", "commands", -1, 2},
				{"inner", "/lock", -1, 1}, {"locks", "/s", 1, 0},
				{"handoffs", "/s", 1, 0}, {"server", "% of a core", 0, 0}},
			goals: []goal{
				valueGoal("at most 4 server commands per handoff between processes", "per-handoff",
					ours, atMost, 4),
				valueGoal("without local handoff: at most 4 server commands per lock", "commands",
					oursAlone, atMost, 4),
			},
		})
	}
	for _, h := range p.holding {
		all = append(all, holding(h, fewer))
	}
	for _, d := range p.delays {
		// Every answer arrives later by d, as on a network where round trips cost more than
		// processor time.
		late := fmt.Sprintf(", %v more for each round trip", d)
		all = append(all, &scenario{
			name:    fmt.Sprintf("latency-%v", d),
			title:   "uncontended acquire and release, one goroutine" + late,
			drivers: uncontended, floor: floor, rounds: fewer, nodes: 1, proxies: 1, delay: d,
			measure: pairs(load{1, 1, 0}),
			metrics: []metric{{"p50", "ms", -1, 2}, {"p99", "ms", -1, 2}},
			goals: []goal{ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost,
				1.15)},
		}, &scenario{
			name: fmt.Sprintf("processes-%v", d), title: contending + inside + late,
			drivers: contenders, floor: blpop, rounds: fewer, nodes: 1, proxies: 1, delay: d,
			measure: contended(0), metrics: processMetrics,
		})
	}
	seldom := valueGoal("a second round in less than 1 % of acquisitions", "second", ours,
		atMost, 1)
	all = append(all, &scenario{
		name: "five-latency", title: "five nodes, uncontended acquire and release, one goroutine",
		drivers: nodesPairs, floor: floor, measure: pairs(load{1, p.warm, p.counted}), nodes: five,
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"allocs", "/pair", -1, 1},
			{"commands", "/pair", -1, 1},
			{"in", "B/pair", -1, 0}, {"out", "B/pair", -1, 0}, serverTime, clientTime, secondRound},
		goals: []goal{ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost, 1.15),
			seldom},
	}, &scenario{
		name:    "five-throughput-64",
		title:   "five nodes, uncontended acquire and release, 64 goroutines on keys of their own",
		drivers: nodesPairs, floor: floor, measure: pairs(load{64, 1, 0}), nodes: five,
		metrics: append(slices.Clip(pairsMetrics), secondRound),
		goals: []goal{
			ratioGoal("at least 0.8 x the floor", "pairs", ours, floor, atLeast, 0.8),
			ratioGoal("at least 1.2 x the best peer", "pairs", ours, bestOf, atLeast, 1.2),
			seldom,
		},
	})
	for _, f := range faults {
		all = append(all, befallen(p, f))
	}
	h := holding(p.nodesHolding, fewer)
	h.name, h.title, h.nodes, h.drivers = "five-"+h.name, "five nodes, "+h.title, five,
		[]string{ours, bare}
	h.metrics = append(h.metrics, metric{"renewed", "locks/command", 1, 1})
	h.goals = []goal{
		valueGoal("at most 20 goroutines, and 5 for each node", "goroutines", ours, atMost,
			20+5*five),
		valueGoal("a command per second to a node for at least 50 locks renewed per second",
			"renewed", ours, atLeast, 50),
	}
	all = append(all, &scenario{
		name: "five-processes", title: "five nodes, " + contending + inside,
		drivers: nodesContenders, measure: contended(0), nodes: five, metrics: processMetrics,
		goals: []goal{
			ratioGoal("handoffs between processes at least 20 x the best peer", "handoffs", ours,
				bestOf, atLeast, 20),
			valueGoal("Jain index at least 0.95", "jain", ours, atLeast, 0.95),
		},
	}, &scenario{
		name:    "five-handover",
		title:   "five nodes, from the call of release to the next holder, in another process",
		drivers: slices.Concat([]string{ours, roundTrip}, nodesPeers), floor: roundTrip,
		measure: roundTrips, nodes: five, metrics: handoverTimes,
		goals: []goal{ratioGoal("p50 at most 2.5 x the round trip to a majority", "p50", ours,
			roundTrip, atMost, 2.5)},
	}, h)
	for _, n := range p.stored {
		all = append(all, &scenario{
			name: fmt.Sprintf("stored-%d", n),
			title: fmt.Sprintf(
				"memory of the server after %d distinct keys were locked and released", n),
			drivers: []string{ours, floor}, rounds: 1, measure: stored(n),
			metrics: []metric{{"memory", "KiB", -1, 0}, {"keys", "", -1, 0},
				{"others", "keys", -1, 0}, {"pairs", "/s", 1, 0}, {"peak", "KiB", 0, 0},
				{"seconds", "", 0, 2}},
			goals: []goal{
				valueGoal("only fence counters remain: other keys", "others", ours, atMost, 0),
				valueGoal("at most one for each of 16,384 slots", "keys", ours, atMost, 16384),
			},
		})
	}
	all = append(all, systems(p)...)
	return append(all, &scenario{
		name:    "files-latency",
		title:   "locks that are files, uncontended acquire and release, one goroutine",
		drivers: []string{ours, flock}, floor: flock, files: true,
		measure: pairs(load{1, p.warm, 0}),
		metrics: []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, clientTime},
	}, &scenario{
		name: "files-processes", title: "locks that are files, " + contending + inside,
		drivers: []string{ours, oursAlone, flock}, floor: flock, files: true, measure: contended(0),
		metrics: fileMetrics,
	}, &scenario{
		name:    "command",
		title:   "a command that does nothing, run under a lock, one after the other",
		drivers: runners, floor: bare, rounds: fewer, files: true, measure: commands(1),
		metrics: runMetrics,
	}, &scenario{
		name: "command-contended",
		title: fmt.Sprintf(
			"a command that does nothing, run under one lock by %d callers at once", p.workers),
		drivers: runners, floor: bare, rounds: fewer, files: true, measure: commands(p.workers),
		metrics: runMetrics,
	})
}

// throughput returns a scenario with many goroutines that do not compete for keys.
func throughput(n int) *scenario {
	s := &scenario{
		name: fmt.Sprintf("throughput-%d", n),
		title: fmt.Sprintf(
			"uncontended acquire and release, %d goroutines on keys of their own", n),
		drivers: uncontended, floor: floor, measure: pairs(load{n, 1, 0}), metrics: pairsMetrics,
		goals: []goal{
			ratioGoal("at least 0.8 x the floor", "pairs", ours, floor, atLeast, 0.8),
			ratioGoal("at least 1.3 x the best peer", "pairs", ours, bestOf, atLeast, 1.3),
		},
	}
	if n <= 64 {
		// With more goroutines, PostgreSQL would need a connection for each. redis-py is in no
		// throughput scenario: Python's threads take turns anyway.
		s.drivers = slices.Concat(uncontended, []string{etcdMutex, advisory, redlockNode})
	}
	if n >= 1000 {
		s.goals = []goal{valueGoal("at least 100,000 operations per second, that is 50,000 pairs",
			"pairs", ours, atLeast, 50_000)}
	}
	return s
}

// holding returns a scenario with many locks that are held and renewed at once.
func holding(h holdingPlan, fewer int) *scenario {
	s := &scenario{
		name: fmt.Sprintf("held-%d", h.locks),
		title: fmt.Sprintf("%d locks held by one process, each renewed every %v", h.locks,
			h.ttl/3),
		drivers: []string{ours, bare, rueidisLock}, floor: bare, rounds: fewer, measure: heldBy(h),
		metrics: []metric{{"cpu", "% of a core", -1, 2}, {"heap", "B/lock", -1, 0},
			{"goroutines", "", -1, 0}, {"commands", "/s", -1, 0},
			{"scripts", "/s", -1, 0}, {"server", "% of a core", -1, 2}},
		goals: []goal{
			ratioGoal("client CPU at most 1.2 x bare pipelined renewals", "cpu", ours, bare,
				atMost, 1.2),
			valueGoal("at most 20 goroutines in all", "goroutines", ours, atMost, 20),
			valueGoal("at most 1.5 KiB per lock", "heap", ours, atMost, 1536),
		},
	}
	if h.locks > 10_000 {
		// rueidislock has a goroutine and timers for each lock, and would take a gigabyte.
		s.drivers, s.rounds = []string{ours, bare}, 1
	}
	return s
}

// befallen returns the scenario of a fault of nodes.
func befallen(p plan, f fault) *scenario {
	s := &scenario{
		name: "five-" + f.name, title: "five nodes, one goroutine, " + f.title,
		drivers: nodesPairs, floor: floor, peerRounds: 1, nodes: 5, proxies: f.proxies,
		patience: 2*p.faultPatience + grace, measure: faulty(f),
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"first", "ms", -1, 2},
			{"p50-x", "x healthy", -1, 2},
			{"p99-x", "x healthy", -1, 2}, {"left", "keys", -1, 0}, {"tries", "", 0, 0}},
		goals: []goal{
			valueGoal("p50 at most 1.2 x healthy", "p50-x", ours, atMost, 1.2),
			valueGoal("p99 at most 1.2 x healthy", "p99-x", ours, atMost, 1.2),
			valueGoal("the first pair after the fault at most 60 ms", "first", ours, atMost, 60),
			valueGoal(fmt.Sprintf("no key left behind on any node, in %d tries", p.tries), "left",
				ours, atMost, 0),
		},
	}
	if !p.hanging {
		s.drivers = slices.Concat([]string{ours}, floors, []string{redsyncFast})
	}
	return s
}
