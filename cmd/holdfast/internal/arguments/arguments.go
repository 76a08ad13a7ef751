// Package arguments reads the command line, and hides its secrets from other users.
package arguments

import (
	"os"
	"strings"
)

// Take returns the command line without the program's name. On Linux it hides addresses that may
// have a secret from the process list. It changes nothing after a --, because that belongs to the
// command to run.
func Take() []string {
	args := make([]string, 0, len(os.Args))
	ours := true
	for _, arg := range os.Args[1:] {
		args = append(args, strings.Clone(arg))
		if ours = ours && arg != "--"; ours {
			hide(arg)
		}
	}
	return args
}
