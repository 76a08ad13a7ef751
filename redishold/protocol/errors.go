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
	"NOPERM":      {permanent: true},                // a script may have done something before
	"WRONGTYPE":   {permanent: true},                // a derived key of another type; as above
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
	// nested finds the code in what Redis 6.2 makes of an error inside a script: "ERR Error running script (call to
	// f_<sha>): @user_script:12: READONLY You can't write ...".
	nested = regexp.MustCompile(`^ERR Error running script .*@user_script: ?\d+: -?([A-Z]+ .*)$`)

	// scriptNoise is what later servers append: " script: <sha>, on @user_script:12."
	scriptNoise = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+\.?$`)

	unknownCommand = regexp.MustCompile(`(?i)^ERR unknown (redis )?command`)
	noPermission   = regexp.MustCompile(`^(ERR|NOPERM) .*(no permissions|can't (run|access))`)
)

// parseServerError finds the code and the words in a server's error text.
func parseServerError(text string) ServerError {
	if match := nested.FindStringSubmatch(text); match != nil {
		text = match[1]
	}
	text = scriptNoise.ReplaceAllString(text, "")
	if noPermission.MatchString(text) && !strings.HasPrefix(text, "NOPERM ") {
		text = "NOPERM " + strings.TrimPrefix(text, "ERR ") // the code gets lost on the way out of a script
	}
	return ServerError(text)
}

// ServerFailure makes the driver's error of an error reply. effect says that the command could have had an
// effect before it failed, as a script can and a single command can not.
func ServerFailure(node, text string, effect bool) *driver.Error {
	err := parseServerError(text)
	v, known := verdicts[err.Code()]
	if !known && unknownCommand.MatchString(string(err)) {
		v = verdict{permanent: true}
	}
	if err.Code() == "NOTALOCK" {
		err = ServerError(strings.TrimPrefix(string(err), "NOTALOCK "))
	}
	return &driver.Error{Node: node, Maybe: effect && !v.refused, Permanent: v.permanent, Err: err}
}

// IsServerError reports whether err wraps a server's error with the code.
func IsServerError(err error, code string) bool {
	var e ServerError
	return errors.As(err, &e) && e.Code() == code
}
