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

// WithSharedDirectory lets several users share the directory. The directory may belong to another
// user, and the files in it get the permissions of the directory itself, whatever the umask is, so
// everybody who can write to the directory can use it. Default: Open refuses a directory of another
// user, and files are for their owner only.
//
// Everybody who can write to the directory can take away every lock in it, so share it only among
// users who trust each other. Give it mode 2770 and a group of its own (the set-group-ID bit passes
// the group on to the files), or mode 1777 on a machine where everybody may use it. Open always
// refuses a directory that everybody may write to and that lacks the sticky bit.
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
