package withredisson

import (
	_ "embed"
	"sync"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

//go:embed lua/acquire.lua
var acquireSource string

//go:embed lua/renew.lua
var renewSource string

//go:embed lua/release.lua
var releaseSource string

var (
	acquireScript = script("acquire", &acquireSource, false)
	renewScript   = script("renew", &renewSource, false)
	releaseScript = script("release", &releaseSource, true)
)

// script returns a function that makes the script when it is first used.
func script(name string, source *string, ends bool) func() *protocol.Script {
	return sync.OnceValue(func() *protocol.Script {
		return protocol.NewScript(name, *source, ends)
	})
}
