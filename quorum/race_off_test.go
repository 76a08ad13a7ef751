//go:build !race

package quorum_test

const defaultHistories = 2000
