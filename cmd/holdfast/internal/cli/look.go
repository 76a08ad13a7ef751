package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// lookFlags are the flags of the commands that show what a backend knows.
type lookFlags struct {
	on      string
	timeout time.Duration
	json    bool
}

// add adds the flags that all of them have.
func (f *lookFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "`address` of the backend; default $HOLDFAST_URL")
	flags.DurationVar(&f.timeout, "timeout", openTime,
		"give up when the backend says nothing for so long")
	completeAddresses(cmd, "on", backendurl.Forms)
}

// addJSON adds the flag of those that have another form for programs.
func (f *lookFlags) addJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.json, "json", false, "print a line of JSON for each key")
}

// viewer is an opened backend with a view on it.
type viewer struct {
	look.View
	backend driver.Backend
	name    string // begins errors
}

// open opens the backend to look at it. If changes is set, it opens it as for locks. The error is
// an *exit. The caller calls close.
func (f *lookFlags) open(given func(flag string) bool, s streams, quiet, changes bool) (*viewer,
	error) {
	if f.timeout <= 0 {
		return nil, usagef("--timeout %v: must be more than 0s", f.timeout)
	}
	at, err := parseAddress(f.on, given("on"))
	if err != nil {
		return nil, err
	}
	return openView(at, s, f.timeout, quiet, changes)
}

func openView(at address, s streams, patience time.Duration, quiet, changes bool) (*viewer, error) {
	ctx := context.Background()
	at, name, err := addressOr(ctx, at, s, quiet)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	backend, err := openWithin(ctx, name, patience,
		func(ctx context.Context) (driver.Backend, error) {
			if changes {
				return at.Open(ctx, nil)
			}
			return at.Look(ctx)
		})
	if err != nil {
		return nil, err
	}
	v := &viewer{backend: backend, name: name}
	inspector, ok := backend.(driver.Inspector)
	if !ok {
		v.close()
		return nil, usagef("%v: this backend cannot show what it knows of its locks", at)
	}
	v.View = look.View{Backend: inspector, Prefix: at.Prefix(), Patience: patience}
	v.Note(time.Since(began))
	return v, nil
}

func (v *viewer) close() {
	after := newCleanup()
	defer after.end()
	after.bounded(func() { _ = v.backend.Close() }) // nothing is kept for later
}

// failure gives an error of the backend its exit code, and says which backend it was.
func (v *viewer) failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errors.ErrUnsupported):
		return usagef("%s%w", v.name, err)
	default:
		return &exit{failureCode(err), fmt.Errorf("%s%w", v.name, err)}
	}
}

// partly is failure for a list that the error has ended: what of it is not known has to be said,
// because what was printed looks like all of it.
func (v *viewer) partly(what string, err error) error {
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return v.failure(err)
	}
	return v.failure(fmt.Errorf("%s: %w", what, err))
}

// hidden takes the logins out of an error.
func hidden(text string) string { return withoutLogins(text, nil) }

// ages is how long ago something was by the clock of this machine.
func ages(at time.Time) time.Duration { return max(time.Since(at), 0) }

// onePrefix wants the beginning of names, or nothing.
func onePrefix(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%d arguments, and there is one at most; write holdfast %s [flags] [PREFIX]",
				len(args), command)
		}
		if len(args) == 1 {
			return notAddress(args[0])
		}
		return nil
	}
}

// notAddress refuses an address in the place of a name: its password would be shown.
func notAddress(name string) error {
	if backendurl.LooksLikeAddress(name) {
		return usagef("the name %s looks like an address; write --on in front of an address",
			shown([]string{name}))
	}
	return nil
}
