package protocol

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// ServerError is what a server answered instead of a result, in its own words.
type ServerError string

// Error returns the server's words.
func (e ServerError) Error() string { return string(e) }

// Code returns the word that begins the error, READONLY for example.
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// meaning is what an error code means for the command that got it.
type meaning struct {
	refused   bool // the command had no effect
	permanent bool // asking again will not help before somebody changes something
}

// meanings are the codes that say more than "it went wrong".
var meanings = map[string]meaning{
	// it was the primary; another server takes over, or it becomes the primary again
	"READONLY":  {refused: true},
	"NOAUTH":    {refused: true, permanent: true},
	"WRONGPASS": {refused: true, permanent: true},
	"DENIED":    {refused: true, permanent: true}, // protected mode
	"NOPROTO":   {refused: true, permanent: true},
	"NOTALOCK":  {refused: true, permanent: true}, // of our scripts: the key is of another type
	// a cluster behind what claims to be a single server
	"CROSSSLOT": {refused: true, permanent: true},
	"NOPERM":    {permanent: true},
	// a derived key of another type, found in the middle of a script
	"WRONGTYPE":   {permanent: true},
	"OOM":         {refused: true},
	"LOADING":     {refused: true},
	"BUSY":        {refused: true}, // somebody's script is running
	"MASTERDOWN":  {refused: true},
	"CLUSTERDOWN": {refused: true},
	"TRYAGAIN":    {refused: true}, // the slot is being moved
	"MOVED":       {refused: true},
	"ASK":         {refused: true},
	"MISCONF":     {refused: true}, // the last snapshot failed
	"NOREPLICAS":  {refused: true},
	"NOSCRIPT":    {refused: true},
	"EXECABORT":   {refused: true}, // of a transaction that a proxy has made of it
}

// harmlessWords begin errors without a code of their own that say that nothing was done.
var harmlessWords = []string{
	"max number of clients",                  // in place of a greeting
	"Script killed by user with SCRIPT KILL", // a script that has written cannot be killed
}

// isHarmless reports whether the words say that nothing was done.
func isHarmless(err ServerError) bool {
	words := strings.TrimPrefix(string(err), "ERR ")
	return slices.ContainsFunc(harmlessWords, func(beginning string) bool {
		return strings.HasPrefix(words, beginning)
	})
}

// pattern compiles a regular expression when it is first used. Compiling all at start would cost
// every program a millisecond, even if it never meets a server.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

var (
	// nested is what Redis 6.2 puts before an error inside a script: "ERR Error running script
	// (call to f_<sha>): ".
	nested = pattern(`^(?:ERR )*Error running script \(call to \w+\): `)

	// location is what it puts before the words, at each level: "@user_script: 12: -READONLY You
	// can't write ...".
	location = pattern(`(?:@user_script: ?\d+: -?)+`)

	// scriptNoise is what later servers append: " script: <sha>, on @user_script:12.", some without
	// the SHA, or without all of it.
	scriptNoise = pattern(`(?:,? script:(?: [0-9a-f]{40})?)?[ ,]* on @user_script:\d+\.?$`)

	// The code ERR says nothing, and some libraries drop it.
	unknownCommand = pattern(`(?i)^(ERR )?unknown (redis )?command`)

	// repeated is how a server repeats the arguments of a command that it does not know. Those of a
	// greeting hold the password.
	repeated = pattern(`(?s),? with args beginning with:.*`)

	// notAllowed is the text for a missing permission inside a script, before Redis 7.2 and since.
	notAllowed = pattern(
		`^(?:ERR |NOPERM )?((?:The user executing the script can't|ACL failure in script:) .*)$`)
)

// parseServerError finds the code and the words in a server's error text, and whether it comes from
// inside a script.
func parseServerError(text string) (err ServerError, inScript bool) {
	text = repeated().ReplaceAllString(text, "")
	for _, noise := range []*regexp.Regexp{nested(), location(), scriptNoise()} {
		if short := noise.ReplaceAllString(text, ""); short != text {
			text, inScript = short, true
		}
	}
	if match := notAllowed().FindStringSubmatch(text); match != nil {
		text, inScript = "NOPERM "+match[1], true // the code gets lost on the way out
	}
	return ServerError(text), inScript
}

// ServerFailure returns the driver's error for an error reply. effect says that the command may
// have had an effect before it failed. A script may, a single command cannot.
func ServerFailure(node, text string, effect bool) *driver.Error {
	err, inScript := parseServerError(text)
	v, known := meanings[err.Code()]
	switch {
	case !known && unknownCommand().MatchString(string(err)):
		v = meaning{refused: !inScript && !strings.Contains(string(err), "from script"),
			permanent: true}
	case !known && isHarmless(err):
		v.refused = true
	case err.Code() == "NOPERM":
		v.refused = !inScript // inside a script, something may have been done before
	case err.Code() == "NOTALOCK":
		err = ServerError(strings.TrimPrefix(string(err), "NOTALOCK "))
	}
	return &driver.Error{Node: node, Maybe: effect && !v.refused, Permanent: v.permanent, Err: err}
}

// IsServerError reports whether err wraps a server's error with the code.
func IsServerError(err error, code string) bool {
	if err == nil {
		return false // before errors.As makes e an allocation
	}
	var e ServerError
	return errors.As(err, &e) && e.Code() == code
}
