package arguments

import (
	"strings"
	"unsafe"
)

// hide overwrites an address behind its scheme if it has a login or parameters, which may be
// secret. On Linux the system reads the process list from the memory of the strings in os.Args.
func hide(arg string) {
	_, secret, ok := strings.Cut(arg, "://")
	if !ok || !strings.ContainsAny(secret, "@?") {
		return
	}
	memory := unsafe.Slice(unsafe.StringData(secret), len(secret))
	for i := range memory {
		memory[i] = 'x'
	}
}
