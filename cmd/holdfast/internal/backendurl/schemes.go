package backendurl

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// scheme is a kind of backend.
type scheme struct {
	form     string            // how an address looks, for errors and help
	params   map[string]string // parameters it takes, and what they mean
	prefix   string            // put before every name, unless the parameter prefix says otherwise
	noServer bool              // an address has a path but neither host nor user

	// parse checks the address, opens nothing, and returns how it may be shown and how it is opened. The
	// parameters given are among params.
	parse func(p parts) (shown string, open func(ctx context.Context) (driver.Backend, error), err error)
}

// schemes are the backends of this build, by the name of their scheme. A backend is added by a line here; it is then
// taken out of planned.
var schemes = map[string]scheme{
	"file": fileScheme,
}

// planned are schemes that have a meaning but no backend in this build.
var planned = []string{
	"redis", "rediss", "redis+sentinel", "redis+cluster", "redlock", "redlocks", "etcd", "postgres", "zookeeper",
}

// refused are schemes that will never have one, and why.
var refused = map[string]string{
	"memory": "memory: would lock in the memory of this one process, where there is nobody else to keep out; " +
		"for a lock on this machine use file: or file:///dir",
}

// paramNames are the parameters of the scheme in alphabetical order.
func (s scheme) paramNames() []string { return slices.Sorted(maps.Keys(s.params)) }

// forms are how addresses look, in alphabetical order.
func forms() []string {
	var f []string
	for _, s := range schemes {
		f = append(f, s.form)
	}
	slices.Sort(f)
	return f
}

// prefixHelp describes the one parameter that every scheme takes.
const prefixHelp = "put before every name to make the key"

// Help describes the addresses that Parse takes, a line each, with their parameters.
func Help() string {
	var text string
	for _, name := range slices.Sorted(maps.Keys(schemes)) {
		s := schemes[name]
		text += "  " + s.form + "\n"
		for _, param := range s.paramNames() {
			text += "      ?" + param + "=  " + s.params[param] + "\n"
		}
	}
	return text
}
