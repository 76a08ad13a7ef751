package backendurl

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// scheme is a kind of backend.
type scheme struct {
	form     string            // how an address looks, for errors and help
	params   map[string]string // parameters it takes, and what they mean
	prefix   string            // put before every name, unless the parameter prefix says otherwise
	noServer bool              // an address has a path but neither host nor user
	program  string            // only that one has the client; empty: each has

	// limits returns the limits of leases with these parameters, of an address that parse accepts.
	// nil: no limits.
	limits func(params map[string]string) limits

	// parse checks the address, and returns the text that may be shown and the opener. It opens
	// nothing. checkParts has accepted the parameters.
	parse func(p parts) (shown string, open opener, err error)
}

// schemes are the backends of this build, by scheme. To add a backend, add a line here and remove
// it from planned.
var schemes = map[string]scheme{
	"file":       fileScheme,
	"etcd":       etcdScheme("etcd", "[user:password@]host[:port][,host[:port]...][/keyspace]"),
	"etcds":      etcdScheme("etcds", "[user:password@]host[:port][,host[:port]...][/keyspace]"),
	"etcd+unix":  etcdScheme("etcd+unix", "/path/of/socket"),
	"redis":      redisScheme("redis", "[user[:password]@]host[:port][/database]"),
	"rediss":     redisScheme("rediss", "[user[:password]@]host[:port][/database]"),
	"redis+unix": redisScheme("redis+unix", "/path/of/socket"),
	"redis+sentinel": redisScheme("redis+sentinel",
		"host[:port][,host[:port]...]/primary[/database]"),
	"rediss+sentinel": redisScheme("rediss+sentinel",
		"host[:port][,host[:port]...]/primary[/database]"),
	"redis+cluster":  redisScheme("redis+cluster", "host[:port][,host[:port]...]"),
	"rediss+cluster": redisScheme("rediss+cluster", "host[:port][,host[:port]...]"),
	"postgres":       postgresLocks("postgres"),
	"postgresql":     postgresLocks("postgresql"),
	"zookeeper":      zooKeeperScheme("zookeeper"),
	"zookeepers":     zooKeeperScheme("zookeepers"),
	"redlock": redlockScheme("redlock",
		"[user[:password]@]host[:port],host[:port],host[:port]...[/database]"),
	"redlocks": redlockScheme("redlocks",
		"[user[:password]@]host[:port],host[:port],host[:port]...[/database]"),
}

// planned are schemes that are known but have no backend in this build.
var planned = []string{
	"consul",
}

// refused are schemes that will never have a backend, with the reason.
var refused = map[string]string{
	"memory": "memory: would lock in the memory of this one process, where there is nobody else to keep out; " +
		"for a lock on this machine use file: or file:///dir",
}

// LooksLikeAddress reports whether text begins as an address of a backend of this build does.
func LooksLikeAddress(text string) bool {
	name, _, found := strings.Cut(text, "://")
	_, known := schemes[name]
	return found && known
}

// forms returns the forms of addresses, in alphabetical order.
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

// Help describes the addresses that Parse takes: a line for each form, and after each group of
// forms their common parameters.
func Help() string {
	forms, params := make(map[string]string), make(map[string]map[string]string)
	for name, s := range schemes {
		forms[name], params[name] = s.form, s.params
	}
	return describe(forms, params)
}

// systems are what schemes begin with, in the order in which help describes them.
var systems = []string{"file", "redis", "redlock", "etcd", "postgres", "zookeeper"}

// describe lists forms and parameters by scheme. The schemes of one system stand together, and of
// these the ones with fewer parameters come first.
func describe(forms map[string]string, params map[string]map[string]string) string {
	system := func(name string) int {
		return slices.IndexFunc(systems, func(s string) bool { return strings.HasPrefix(name, s) })
	}
	names := slices.SortedFunc(maps.Keys(forms), func(a, b string) int {
		return cmp.Or(system(a)-system(b), len(params[a])-len(params[b]), strings.Compare(a, b))
	})
	var text strings.Builder
	for i, name := range names {
		text.WriteString("  " + forms[name] + "\n")
		if i+1 < len(names) && maps.Equal(params[name], params[names[i+1]]) {
			continue
		}
		for _, param := range slices.Sorted(maps.Keys(params[name])) {
			text.WriteString("      ?" + param + "=  " + params[name][param] + "\n")
		}
	}
	return text.String()
}
