package quorum

import "github.com/holdfast-go/holdfast/driver"

// maxSeen is the largest token that is believed. Tokens look like microseconds since 1970 and have
// to stay below 2^53. So a larger one comes from a node whose counter is broken, and must not
// spread.
const maxSeen = 1 << 52

// propose raises a proposed token above all tokens seen. Nodes grant the proposed token if it is
// larger than all they have granted. Then they agree, and one round is enough.
func (q *Quorum) propose(token driver.Token) driver.Token {
	return max(token, driver.Token(q.highest.Load())+1)
}

// saw notes a block of tokens that was granted.
func (q *Quorum) saw(first driver.Token, block uint64) {
	last := uint64(first) + max(block, 1) - 1
	for last < maxSeen {
		highest := q.highest.Load()
		if last <= highest || q.highest.CompareAndSwap(highest, last) {
			return
		}
	}
}
