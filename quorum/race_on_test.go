//go:build race

package quorum_test

// The race detector makes a history several times as slow.
const defaultHistories = 100
