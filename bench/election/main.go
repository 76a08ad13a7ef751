//go:build linux

// Command election measures how long nobody leads, whether two ever lead at once, and what a leader
// and two waiting candidates cost: with holdfast's election on Redis and in a directory, etcd's
// concurrency.Election, client-go's leaderelection with its record in etcd, and the lock of Consul.
// Candidates are processes. It starts, kills, stops and cuts them off itself, and starts the
// servers, too.
//
//	go run ./bench/election -rounds 10 -changes 1000
//
// It writes tables in Markdown.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if kind := os.Getenv(kindVariable); kind != "" {
		if err := campaign(kind, os.Getenv(addressVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	rounds := flag.Int("rounds", 10, "how often the leader ends in each way")
	changes := flag.Int("changes", 1000, "changes of the leader in the search for overlaps")
	fleets := flag.Int("fleets", 1, "in how many elections side by side the leader changes")
	idle := flag.Duration("idle", 20*time.Second, "for how long requests are counted")
	only := flag.String("only", "",
		"redis, directory, etcd, client-go, client-go-release or consul, with commas; "+
			"default: all but consul, whose server has to be built")
	flag.Parse()
	if err := compare(*rounds, *changes, *fleets, *idle, *only); err != nil {
		fmt.Fprintln(os.Stderr, "election:", err)
		os.Exit(1)
	}
}

// compare measures each contender and writes the tables.
func compare(rounds, changes, fleets int, idle time.Duration, only string) error {
	var results []result
	for _, c := range contenders {
		if only == "" && c.kind == "consul" ||
			only != "" && !slices.Contains(strings.Split(only, ","), c.kind) {
			continue
		}
		r, err := measure(c, rounds, changes, fleets, idle)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
	}
	fmt.Printf("Lease %v, three candidates, %d rounds: median (smallest to largest).\n\n", lease,
		rounds)
	fmt.Println("| | orderly stop | kill -9 | SIGSTOP | partition |")
	fmt.Println("|---|---|---|---|---|")
	for _, r := range results {
		fmt.Printf("| %s | %s | %s | %s | %s |\n", r.name, r.gaps[terminate], r.gaps[kill],
			r.gaps[stop], r.gaps[partition])
	}
	fmt.Println("\n| | changes | of these by kill -9, SIGSTOP, partition " +
		"| overlaps, of these after SIGSTOP | requests/s while idle |")
	fmt.Println("|---|---|---|---|---|")
	for _, r := range results {
		requests := "no server"
		if r.requests >= 0 {
			requests = fmt.Sprintf("%.2f", r.requests)
		}
		fmt.Printf("| %s | %d | %d, %d, %d | %d, %d | %s |\n", r.name, r.changes, r.faults[kill],
			r.faults[stop], r.faults[partition], r.overlaps, r.afterStop, requests)
	}
	return nil
}
