package backendurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

var fileScheme = scheme{
	form: "file:///dir",
	params: map[string]string{
		"prefix": prefixHelp + "; none unless set",
		"shared": "true if several users share the directory; false unless set",
	},
	noServer: true,
	parse: func(p parts) (string, opener, error) {
		var options []filehold.Option
		switch p.params["shared"] {
		case "true":
			options = append(options, filehold.WithSharedDirectory())
		case "false", "":
		default:
			return "", nil, errors.New("parameter shared is neither true nor false")
		}
		if p.path == "" && !p.slashes {
			return "file:", func(context.Context, how) (driver.Backend, error) {
				dir, err := userDir()
				if err != nil {
					return nil, err
				}
				return openDir(dir, options)
			}, nil
		}
		dir, err := pathOf(p, "directory", "file:///dir")
		if err != nil {
			return "", nil, err
		}
		return shownDir(dir), func(_ context.Context, h how) (driver.Backend, error) {
			if h.reads {
				// filehold would make the directory, and a user who mistypes its name would see one
				// without locks.
				if _, err := os.Stat(dir); err != nil {
					return nil, err
				}
			}
			return openDir(dir, options)
		}, nil
	},
}

// pathOf returns the path in an address of a directory or file on this machine. Errors name it by
// what, and show form as the way to write it.
func pathOf(p parts, what, form string) (string, error) {
	switch {
	case p.hasUser:
		return "", fmt.Errorf("%s: takes no user and no password; write %s", p.scheme, form)
	case p.hosts != "" && !strings.EqualFold(p.hosts, "localhost"):
		return "",
			fmt.Errorf(
				"%s: is for a %s of this machine, but the text after two slashes is a host; "+
					"write three slashes: %s", p.scheme, what, form)
	}
	path, err := url.PathUnescape(p.path)
	switch {
	case err != nil:
		return "", fmt.Errorf("the %s has a %% without two hex digits", what)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("the %s has a zero byte", what)
	case !strings.HasPrefix(path, "/"):
		return "",
			fmt.Errorf(
				"the %s is not absolute, and commands may start in different directories; "+
					"write %s", what, form)
	}
	return filepath.FromSlash(path), nil
}

// openDir opens an existing directory.
func openDir(dir string, options []filehold.Option) (driver.Backend, error) {
	b, err := filehold.Open(dir, options...)
	if err != nil {
		return nil, inOurWords{err} // b would be a nil pointer in an interface that is not nil
	}
	return b, nil
}

// UserDir returns the directory of the address "file:", which is also used without an address. On
// Unix it is /tmp/holdfast- and the number of the user. It does not depend on the environment, so a
// cron job and a shell of one user exclude each other. UserDir makes the directory if it is
// missing. It fails if the directory belongs to another user or is open to others. Elsewhere it is
// holdfast in the user's directory for temporary files, and nothing is checked.
//
// A service with a /tmp of its own (PrivateTmp of systemd) shares this directory with nobody, and
// has to name one.
func UserDir() (string, error) { return userDir() }

// Dir returns the address of a directory.
func Dir(dir string) *Address {
	return &Address{
		shown: shownDir(dir),
		open: func(context.Context, how) (driver.Backend, error) {
			return openDir(dir, nil)
		},
	}
}

// shownDir returns the address of a directory. It escapes the @ as well, because an @ would look
// like the end of a password.
func shownDir(dir string) string {
	return "file://" + strings.ReplaceAll((&url.URL{Path: filepath.ToSlash(dir)}).EscapedPath(),
		"@", "%40")
}
