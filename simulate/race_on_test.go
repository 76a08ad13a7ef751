//go:build race

package simulate

// A history takes up to a second of a processor with the race detector, and about a sixth of that
// without. make test also runs two thousand without.
const defaultHistories = 120
