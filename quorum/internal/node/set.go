package node

import "math/bits"

// Max is the largest number of nodes that work together.
const Max = 9

// Set is a set of nodes, by their index.
type Set uint16

// Only is the set of one node.
func Only(i int) Set { return 1 << i }

// Every is the set of the first n nodes.
func Every(n int) Set { return 1<<n - 1 }

// Has reports whether node i is in the set.
func (s Set) Has(i int) bool { return s&Only(i) != 0 }

// Count returns how many nodes are in the set.
func (s Set) Count() int { return bits.OnesCount16(uint16(s)) }
