package protocol

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// exhausted reports whether some of the tokens that a script has drawn for the claim are not exact.
// Then the fence does not rise any more, and these tokens may have been drawn before.
func exhausted(token driver.Token, claim *driver.Claim) bool {
	return uint64(token)+max(claim.Block, 1) > maxExact
}

// fenceFailure returns the error for a slot that has no token left. Time alone does not lead there:
// somebody has set the fence, or a client's clock was centuries ahead.
func fenceFailure(key string) error {
	fence := KeysOf(key).Fence
	return &driver.Error{Maybe: true, Permanent: true,
		Err: fmt.Errorf("the fence of the key's slot, %s, has no token left below 2^53: "+
			"when nobody holds a lock of that slot, repair it with DEL %s; tokens are then smaller than those granted last",
			fence, fence)}
}
