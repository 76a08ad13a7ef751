package backendurl

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

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
	"file":            fileScheme,
	"redis":           redisScheme("redis", "[user[:password]@]host[:port][/database]"),
	"rediss":          redisScheme("rediss", "[user[:password]@]host[:port][/database]"),
	"redis+unix":      redisScheme("redis+unix", "/path/of/socket"),
	"redis+sentinel":  redisScheme("redis+sentinel", "host[:port][,host[:port]...]/primary[/database]"),
	"rediss+sentinel": redisScheme("rediss+sentinel", "host[:port][,host[:port]...]/primary[/database]"),
	"redis+cluster":   redisScheme("redis+cluster", "host[:port][,host[:port]...]"),
	"rediss+cluster":  redisScheme("rediss+cluster", "host[:port][,host[:port]...]"),
	"redlock":         redlockScheme("redlock", "[user[:password]@]host[:port],host[:port],host[:port]...[/database]"),
	"redlocks":        redlockScheme("redlocks", "[user[:password]@]host[:port],host[:port],host[:port]...[/database]"),
}

// planned are schemes that have a meaning but no backend in this build.
var planned = []string{
	"etcd", "postgres", "zookeeper",
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

// Help describes the addresses that Parse takes, a line each, with their parameters behind those that share them.
func Help() string {
	names := slices.SortedFunc(maps.Keys(schemes), func(a, b string) int {
		return cmp.Or(len(schemes[a].params)-len(schemes[b].params), strings.Compare(a, b))
	})
	var text strings.Builder
	for i, name := range names {
		s := schemes[name]
		text.WriteString("  " + s.form + "\n")
		if i+1 < len(names) && maps.Equal(s.params, schemes[names[i+1]].params) {
			continue
		}
		for _, param := range s.paramNames() {
			text.WriteString("      ?" + param + "=  " + s.params[param] + "\n")
		}
	}
	return text.String()
}
