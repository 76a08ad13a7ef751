package protocol

import (
	"errors"
	"regexp"
	"strings"

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

// verdict is what an error code means for the command that got it.
type verdict struct {
	refused   bool // the command had no effect
	permanent bool // asking again will not help before somebody changes something
}

// verdicts are the codes that say more than "it went wrong".
var verdicts = map[string]verdict{
	"READONLY":    {refused: true, permanent: true}, // a replica
	"NOAUTH":      {refused: true, permanent: true},
	"WRONGPASS":   {refused: true, permanent: true},
	"DENIED":      {refused: true, permanent: true}, // protected mode
	"NOPROTO":     {refused: true, permanent: true},
	"NOTALOCK":    {refused: true, permanent: true}, // of our scripts: the key is of another type
	"CROSSSLOT":   {refused: true, permanent: true}, // a cluster behind what claims to be a single server
	"NOPERM":      {permanent: true},
	"WRONGTYPE":   {permanent: true}, // a derived key of another type, found in the middle of a script
	"OOM":         {refused: true},
	"LOADING":     {refused: true},
	"BUSY":        {refused: true}, // somebody's script runs for long
	"MASTERDOWN":  {refused: true},
	"CLUSTERDOWN": {refused: true},
	"TRYAGAIN":    {refused: true}, // the slot is being moved
	"MOVED":       {refused: true},
	"ASK":         {refused: true},
	"MISCONF":     {refused: true}, // the last snapshot failed
	"NOREPLICAS":  {refused: true},
	"NOSCRIPT":    {refused: true},
}

var (
	// nested finds the code in what Redis 6.2 makes of an error inside a script: "ERR Error running script
	// (call to f_<sha>): @user_script:12: READONLY You can't write ...".
	nested = regexp.MustCompile(`^(?:ERR )?Error running script .*@user_script: ?\d+: -?([A-Z]+ .*)$`)

	// scriptNoise is what later servers append: " script: <sha>, on @user_script:12."
	scriptNoise = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+\.?$`)

	// The code ERR says nothing, and some libraries drop it.
	unknownCommand = regexp.MustCompile(`(?i)^(ERR )?unknown (redis )?command`)

	// notAllowed is how the lack of a permission inside a script is told.
	notAllowed = regexp.MustCompile(`^(?:ERR |NOPERM )?(The user executing the script can't .*)$`)
)

// parseServerError finds the code and the words in a server's error text, and whether it comes from inside a
// script.
func parseServerError(text string) (err ServerError, inScript bool) {
	if match := nested.FindStringSubmatch(text); match != nil {
		text, inScript = match[1], true
	}
	if short := scriptNoise.ReplaceAllString(text, ""); short != text {
		text, inScript = short, true
	}
	if match := notAllowed.FindStringSubmatch(text); match != nil {
		text, inScript = "NOPERM "+match[1], true // the code gets lost on the way out
	}
	return ServerError(text), inScript
}

// ServerFailure makes the driver's error of an error reply. effect says that the command could have had an
// effect before it failed, as a script can and a single command can not.
func ServerFailure(node, text string, effect bool) *driver.Error {
	err, inScript := parseServerError(text)
	v, known := verdicts[err.Code()]
	switch {
	case !known && unknownCommand.MatchString(string(err)):
		v = verdict{refused: !inScript && !strings.Contains(string(err), "from script"), permanent: true}
	case err.Code() == "NOPERM":
		v.refused = !inScript // else the script may have done something before
	case err.Code() == "NOTALOCK":
		err = ServerError(strings.TrimPrefix(string(err), "NOTALOCK "))
	}
	return &driver.Error{Node: node, Maybe: effect && !v.refused, Permanent: v.permanent, Err: err}
}

// IsServerError reports whether err wraps a server's error with the code.
func IsServerError(err error, code string) bool {
	var e ServerError
	return errors.As(err, &e) && e.Code() == code
}
