package quorum

import "math/bits"

// nodeSet is a set of nodes, by their index.
type nodeSet uint16

func only(i int) nodeSet { return 1 << i }

func everyOf(n int) nodeSet { return 1<<n - 1 }

func (s nodeSet) has(i int) bool { return s&only(i) != 0 }

func (s nodeSet) count() int { return bits.OnesCount16(uint16(s)) }
