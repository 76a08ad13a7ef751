//go:build !race

package quorum_test

const (
	defaultHistories = 2000
	manyLocks        = 10_000 // held at once
)

var setSizes = []int{3, 5} // for which the conformance suite runs
