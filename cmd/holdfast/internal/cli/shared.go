package cli

import (
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// mode returns the options of the Locker that say whether it shares its locks.
func (j *job) mode() []holdfast.Option {
	if j.shared {
		return []holdfast.Option{holdfast.WithShared()}
	}
	return nil
}

// checkShared returns an *exit if the job is to share its locks and the backend cannot.
func (j *job) checkShared(backend driver.Backend) error {
	if !j.shared {
		return nil
	}
	if b, ok := backend.(driver.Sharer); ok && b.Shares() {
		return nil
	}
	at := "the directory of this user"
	if j.address != nil {
		at = j.address.String()
	}
	return usagef("--shared: %s cannot share locks; without --shared each is held alone", at)
}
