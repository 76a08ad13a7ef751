package backendurl_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// TestOurWords: an error of a library loses the names of its packages, and names the parameter of
// the address in place of the Go option.
func TestOurWords(t *testing.T) {
	for text, want := range map[string]string{
		"use your own, or say WithSharedDirectory":          "use your own, or say ?shared=true",
		"redishold: h:6379: backend unavailable":            "h:6379: backend unavailable",
		"redlock: invalid: URL: 1 hosts: at least 3":        "1 hosts: at least 3",
		"redishold: invalid: URL: wait x: must be a number": "wait x: must be a number",
		"/dir: backend unavailable: URL: x":                 "/dir: backend unavailable: URL: x",
	} {
		cause := errors.New(text)
		if err := backendurl.InOurWords(cause); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%q becomes %q, want %q", text, err, want)
		}
	}
}
