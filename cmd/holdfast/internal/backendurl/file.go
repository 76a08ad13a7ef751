package backendurl

import (
	"context"
	"errors"
	"net/url"
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
	parse: func(p parts) (string, func(context.Context) (driver.Backend, error), error) {
		var options []filehold.Option
		switch p.params["shared"] {
		case "true":
			options = append(options, filehold.WithSharedDirectory())
		case "false", "":
		default:
			return "", nil, errors.New("parameter shared is neither true nor false")
		}
		switch {
		case p.hasUser:
			return "", nil, errors.New("file: takes no user and no password; write file:///dir")
		case p.hosts != "" && !strings.EqualFold(p.hosts, "localhost"):
			return "", nil, errors.New("file: is for a directory of this machine, and what follows two slashes is read as a host; " +
				"write three: file:///dir")
		case p.path == "" && !p.slashes:
			return "file:", func(context.Context) (driver.Backend, error) {
				dir, err := userDir()
				if err != nil {
					return nil, err
				}
				return openDir(dir, options)
			}, nil
		}
		dir, err := url.PathUnescape(p.path)
		switch {
		case err != nil:
			return "", nil, errors.New("the directory has a % without two hex digits")
		case strings.ContainsRune(dir, 0):
			return "", nil, errors.New("the directory has a zero byte")
		case !strings.HasPrefix(dir, "/"):
			return "", nil, errors.New("the directory is not absolute, and two commands may be started in different places; " +
				"write file:///dir")
		}
		dir = filepath.FromSlash(dir)
		return shownDir(dir), func(context.Context) (driver.Backend, error) {
			return openDir(dir, options)
		}, nil
	},
}

// openDir opens a directory that is there.
func openDir(dir string, options []filehold.Option) (driver.Backend, error) {
	b, err := filehold.Open(dir, options...)
	if err != nil {
		return nil, err // not b: a nil *filehold.Backend in an interface is not nil
	}
	return b, nil
}

// UserDir is the directory of the address "file:" and of no address at all: /tmp/holdfast- and the number of the user,
// whatever the environment says, so that a cron job and a shell of one user exclude each other. (On Windows it is holdfast
// among the user's temporary files.) It is made if it is missing. It fails if it is not a directory that belongs to this user
// and to nobody else.
//
// A service that has a /tmp of its own, as systemd's PrivateTmp gives it, is alone there: it names its directory.
func UserDir() (string, error) { return userDir() }

// Dir is the address of a directory.
func Dir(dir string) *Address {
	return &Address{
		shown: shownDir(dir),
		open:  func(context.Context) (driver.Backend, error) { return openDir(dir, nil) },
	}
}

// shownDir escapes the @ as well, which in an address looks like the end of a password.
func shownDir(dir string) string {
	return "file://" + strings.ReplaceAll((&url.URL{Path: filepath.ToSlash(dir)}).EscapedPath(), "@", "%40")
}
