//go:build race

package simulate

// A history takes two seconds of a processor with the race detector, ten times what it takes
// without. make test runs thousands without.
const defaultHistories = 120
