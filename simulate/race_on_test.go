//go:build race

package simulate

// Enough for a data race in the kernel that only these histories found, and for some seconds of the
// race detector.
const defaultHistories = 400
