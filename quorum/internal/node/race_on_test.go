//go:build race

package node

// defaultOrders is few, because the race detector makes everything about ten times as slow, and the
// orders have one goroutine.
const defaultOrders = 3000
