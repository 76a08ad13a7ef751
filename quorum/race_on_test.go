//go:build race

package quorum_test

// The race detector makes everything some ten times as slow. make test runs what is cut short here
// without it as well.
const (
	defaultHistories = 300
	manyLocks        = 1000 // held at once
)

var setSizes = []int{3} // for which the conformance suite runs
