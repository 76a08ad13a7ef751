//go:build !race

package simulate

// defaultHistories is few, for those who run all tests. HOLDFAST_HISTORIES asks for more.
const defaultHistories = 100
