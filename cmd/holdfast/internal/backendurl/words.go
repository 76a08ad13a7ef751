package backendurl

import "strings"

// inOurWords is a library's error in the operator's words: without the names of packages, and with
// the parameter of the address in place of the Go option.
type inOurWords struct{ error }

func (e inOurWords) Error() string {
	text := e.error.Error()
	for _, library := range []string{
		"redlock: ", "redishold: ", "etcdhold: ", "pghold: ", "zkhold: ", "invalid: ", "URL: ",
	} {
		text = strings.TrimPrefix(text, library)
	}
	return strings.NewReplacer("WithSharedDirectory", "?shared=true",
		"run pghold.Migrate, or the SQL of pghold.Schema",
		"add ?create=true to the address once").Replace(text)
}

func (e inOurWords) Unwrap() error { return e.error }
