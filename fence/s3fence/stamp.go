package s3fence

import (
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// newStamp begins the stamps of one call of Put. It is random, so that no other call has the same,
// also one with the same token.
func newStamp(token fence.Token) string { return token.String() + "-" + rand.Text() + "-" }

// parseStamp returns the token of a stamp.
func parseStamp(stamp string) (fence.Token, bool) {
	digits, _, found := strings.Cut(stamp, "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	token := fence.Token(n)
	return token, found && err == nil && fence.ValidateToken("", token) == nil
}
