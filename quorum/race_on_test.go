//go:build race

package quorum_test

// The race detector makes a history five times as slow. CI runs ten thousand more without it.
const defaultHistories = 1000
