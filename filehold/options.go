package filehold

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Option sets an option of [Open].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

type config struct {
	shared bool
}

// WithSharedDirectory says that several users are meant to share the directory: it may belong to
// somebody else, and the files in it get the permissions of the directory itself, whatever the
// umask leaves to others, so that all who can write to the directory can use it. Without it, a
// directory of another user is refused and files are for the owner only.
//
// Everybody who can write to the directory can then take every lock in it away, so share it among
// those who trust each other: mode 2770 with a group of its own (the set-group-ID bit passes the
// group on to the files), or 1777 on a machine where everybody may. A directory that everybody may
// write to and that lacks the sticky bit is refused in any case.
func WithSharedDirectory() Option {
	return option(func(c *config) { c.shared = true })
}

func configure(dir string, options []Option) (cfg config, err error) {
	for i, o := range options {
		if o == nil {
			return cfg, &driver.Error{Node: dir, Invalid: true,
				Err: fmt.Errorf("option %d is nil: leave it out", i+1)}
		}
		o.apply(&cfg)
	}
	return cfg, nil
}
