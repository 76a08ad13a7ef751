package main

import "time"

// plan says how much is measured.
type plan struct {
	name     string
	rounds   int
	limit    time.Duration // for all scenarios
	patience time.Duration // for one measurement of one driver

	span       time.Duration // of a measurement of latency or throughput
	warm       int           // pairs before the span
	counted    int           // pairs whose commands and allocations are counted
	parallel   []int         // goroutines on distinct keys
	contenders int           // goroutines on one key

	workers    int           // processes
	each       int           // goroutines of each worker
	readers    int           // goroutines of each worker that share a key
	writers    int           // of each worker, beside the readers
	contention time.Duration // span of a measurement with workers
	work       time.Duration // time that a holder works with the lock, in scenarios where it works

	handovers    time.Duration // span
	minHandovers int           // the span goes on until there are as many

	crowds []int         // waiters over all processes
	settle time.Duration // the time after which all of 10,000 goroutines wait

	holding []holdingPlan
	stored  []int           // distinct keys locked and released
	delays  []time.Duration // of each answer, as on a slower network

	// also measure libraries that hang for seconds during a fault
	hanging       bool
	tries         int           // pairs while a fault lasts
	faultSpan     time.Duration // after it no further try begins
	faultSettle   time.Duration // for requests that are under way when a fault is over
	faultPatience time.Duration // bound for one measurement of one driver
	nodesHolding  holdingPlan
	nodeTimeout   time.Duration // of a quorum; 0 for its default
	systemHolding holdingPlan   // on etcd, PostgreSQL and ZooKeeper
}

// holdingPlan is one size of the scenario with many held locks.
type holdingPlan struct {
	locks int
	ttl   time.Duration // a third of it is the interval of renewals
	span  time.Duration // a multiple of that
}

var fullPlan = plan{
	name: "full", rounds: 3, limit: 30 * time.Minute, patience: 2 * time.Minute,
	span: time.Second, warm: 200, counted: 1000, parallel: []int{64, 1000}, contenders: 32,
	workers: 4, each: 4, readers: 250, writers: 2, contention: 1500 * time.Millisecond,
	work:      time.Millisecond,
	handovers: 1500 * time.Millisecond, minHandovers: 10,
	crowds: []int{4, 100, 1000, 10_000}, settle: 3 * time.Second,
	holding: []holdingPlan{{10_000, 6 * time.Second, 6 * time.Second},
		{100_000, 30 * time.Second, 10 * time.Second}},
	stored:  []int{1000, 100_000, 1_000_000},
	delays:  []time.Duration{time.Millisecond, 10 * time.Millisecond},
	hanging: true, tries: 1000, faultSpan: 5 * time.Second, faultSettle: 2 * time.Second,
	faultPatience: 30 * time.Second,
	nodesHolding:  holdingPlan{10_000, 6 * time.Second, 6 * time.Second},
	systemHolding: holdingPlan{10_000, 30 * time.Second, 10 * time.Second},
}

var quickPlan = plan{
	name: "quick", rounds: 2, limit: 5 * time.Minute, patience: 20 * time.Second,
	span: 250 * time.Millisecond, warm: 100, counted: 300, parallel: []int{64}, contenders: 32,
	workers: 4, each: 4, readers: 250, writers: 2, contention: 350 * time.Millisecond,
	work:      time.Millisecond,
	handovers: 400 * time.Millisecond, minHandovers: 3,
	crowds: []int{10_000}, settle: 1500 * time.Millisecond,
	holding: []holdingPlan{{10_000, 3 * time.Second, 2 * time.Second}},
	stored:  []int{100_000},
	delays:  []time.Duration{time.Millisecond},
	tries:   200, faultSpan: time.Second, faultSettle: time.Second, faultPatience: 12 * time.Second,
	nodesHolding:  holdingPlan{10_000, 3 * time.Second, time.Second},
	systemHolding: holdingPlan{1000, 30 * time.Second, 10 * time.Second},
}

// smokePlan shows only that everything runs.
var smokePlan = plan{
	name: "smoke", rounds: 1, limit: 15 * time.Minute, patience: 2 * time.Minute,
	span: 10 * time.Millisecond, warm: 3, counted: 5, parallel: []int{4}, contenders: 4,
	workers: 2, each: 2, readers: 4, writers: 1, contention: 50 * time.Millisecond,
	work:      time.Millisecond,
	handovers: 10 * time.Millisecond, minHandovers: 1,
	crowds: []int{20}, settle: 50 * time.Millisecond,
	holding: []holdingPlan{{50, 6 * time.Second, 2 * time.Second}},
	stored:  []int{100},
	delays:  []time.Duration{time.Millisecond},
	hanging: true, tries: 5, faultSpan: 100 * time.Millisecond, faultSettle: 200 * time.Millisecond,
	faultPatience: 4 * time.Second,
	nodesHolding:  holdingPlan{50, 6 * time.Second, 2 * time.Second},
	systemHolding: holdingPlan{50, 12 * time.Second, 4 * time.Second},
	// It runs as a test, with the race detector, on overloaded machines.
	nodeTimeout: 2 * time.Second,
}
