//go:build race

package simulate

// This is enough to find a data race in the kernel that only these histories found. It takes some
// seconds with the race detector.
const defaultHistories = 250
