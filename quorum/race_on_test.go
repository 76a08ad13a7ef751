//go:build race

package quorum_test

// The race detector makes everything about ten times as slow. What is cut short here, make test
// also runs without it.
const (
	defaultHistories = 300
	manyLocks        = 1000 // held at once
)

var setSizes = []int{3} // for which the conformance suite runs
