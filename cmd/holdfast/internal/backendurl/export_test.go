package backendurl

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// A scheme with servers, whose parse function shows all that it may show.
func init() {
	schemes["test"] = scheme{
		form:   "test://host",
		prefix: "lock:",
		params: map[string]string{"prefix": prefixHelp, "password": "a secret"},
		parse: func(p parts) (string, opener, error) {
			open := func(context.Context, how) (driver.Backend, error) {
				return nil, errors.New("there is no server")
			}
			if p.hosts == "" {
				return "", nil, errors.New("no host; use one of test://host")
			}
			return p.scheme + "://" + p.hosts + p.path, open, nil
		},
	}
}

// InOurWords is inOurWords.
func InOurWords(err error) error { return inOurWords{err} }
