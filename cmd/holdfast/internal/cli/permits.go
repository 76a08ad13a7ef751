package cli

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
)

// slotVariable is where a command has the number of its permit's slot.
const slotVariable = "HOLDFAST_SLOT"

// grip is what a job holds: the locks on all of its names, or one permit.
type grip interface {
	child.Lease
	Release(ctx context.Context) error
	Locks() []*holdfast.Lock
	Token(name string) holdfast.Token
}

// permit is a lock as a grip.
type permit struct{ *holdfast.Lock }

// Locks returns the permit.
func (p permit) Locks() []*holdfast.Lock { return []*holdfast.Lock{p.Lock} }

// Token returns the token of the permit, whatever the name: a permit has only one.
func (p permit) Token(string) holdfast.Token { return p.Lock.Token() }

// attempt calls the Locker once.
func (j *job) attempt(ctx context.Context, locker *holdfast.Locker) (grip, error) {
	if j.permits > 0 {
		one := locker.Acquire
		if j.try {
			one = locker.TryAcquire
		}
		lock, err := one(ctx, j.names[0], holdfast.WithPermits(j.permits))
		return permit{lock}, err
	}
	all := locker.AcquireAll
	if j.try {
		all = locker.TryAcquireAll
	}
	return all(ctx, j.names)
}

func addPermits(flags *pflag.FlagSet, f *runFlags) {
	flags.IntVar(&f.permits, "permits", 0, "let at most `N` hold the lock")
	flags.Lookup("permits").DefValue = "1, a lock"
}

// checkPermits checks --permits and the names beside it.
func (f *runFlags) checkPermits(given func(flag string) bool, names []string) error {
	switch {
	case !given("permits"):
		return nil
	case f.permits < 1 || f.permits > holdfast.MaxPermits:
		return usagef("--permits %d: must be 1 to %d", f.permits, holdfast.MaxPermits)
	case len(names) > 1:
		return usagef("--permits %d with %d names; give one name", f.permits, len(names))
	case f.shared:
		return usagef("--permits %d with --shared: a permit has one holder; give one of them",
			f.permits)
	}
	return nil
}
