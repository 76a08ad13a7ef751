//go:build !race

package node

// defaultOrders is how many random orders of calls there are. HOLDFAST_HISTORIES asks for more.
const defaultOrders = 30_000
