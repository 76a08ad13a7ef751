//go:build !race

package quorum_test

const defaultHistories = 1000
