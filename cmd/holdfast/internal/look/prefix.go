package look

import (
	"context"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Check examines the backend by its own check, and the prefix of the View.
func (v *View) Check(ctx context.Context, backend driver.Checker) ([]driver.Finding, error) {
	findings, err := backend.Check(ctx)
	if err != nil || !open(v.Prefix) {
		return findings, err
	}
	return append(findings, driver.Finding{
		Severity: driver.Note,
		Code:     "prefix",
		Summary: fmt.Sprintf("The prefix %q ends in a letter or a digit, so programs with another "+
			"prefix may mean the same locks.", v.Prefix),
		Advice: fmt.Sprintf("End it with a character that no name begins with, as in %q.",
			v.Prefix+":"),
	}), nil
}

// open reports whether nothing shows where the prefix ends and a name begins. A lock is kept under
// both together.
func open(prefix string) bool {
	last, _ := utf8.DecodeLastRuneInString(prefix)
	return prefix != "" && (unicode.IsLetter(last) || unicode.IsDigit(last))
}
