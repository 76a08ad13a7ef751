package protocol

import (
	"embed"
	"fmt"
	"sync"
)

//go:embed lua/*.lua
var sources embed.FS

// Script is a Lua script that the server runs as one step.
type Script struct {
	Name   string // of the file, without its ending
	Source string // with what it includes
	SHA    string // what EVALSHA knows it by
}

// The scripts are built when they are first used: most programs that link them never meet a server.
var (
	acquireScript = sync.OnceValue(func() *Script { return load("acquire") })
	releaseScript = sync.OnceValue(func() *Script { return load("release") })
	renewScript   = sync.OnceValue(func() *Script { return load("renew") })
	keepScript    = sync.OnceValue(func() *Script { return load("keep") })
	turnScript    = sync.OnceValue(func() *Script { return load("turn") })
	inspectScript = sync.OnceValue(func() *Script { return load("inspect") })
	belongScript  = sync.OnceValue(func() *Script { return load("belong") })
)

// Scripts returns all scripts, for a connection to load before they are needed.
func Scripts() []*Script {
	return []*Script{acquireScript(), releaseScript(), renewScript(), keepScript(), turnScript(),
		inspectScript(), belongScript()}
}

var include = pattern(`(?m)^\s*-- include (\w+)\.lua$`)

// load reads a script, and puts what it includes where the script says so. That is behind the point
// where the usual case has returned, because a script pays for each function that it defines.
func load(name string) *Script {
	source := include().ReplaceAllStringFunc(read(name), func(line string) string {
		return read(include().FindStringSubmatch(line)[1])
	})
	return NewScript(name, source, name == "release")
}

func read(name string) string {
	data, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(fmt.Sprintf("protocol: %v", err)) // the files are part of the binary
	}
	return string(data)
}
