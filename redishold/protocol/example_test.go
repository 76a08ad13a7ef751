package protocol_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Whoever looks for a lock on a server by hand finds it, its queue and its tokens here.
func ExampleKeysOf() {
	keys := protocol.KeysOf("lock:invoice/42")
	fmt.Println(keys.Lock)
	fmt.Println(keys.Queue)
	fmt.Println(keys.Fence)
	// Output:
	// lock:invoice/42
	// holdfast:q:{b4q}:lock:invoice/42
	// holdfast:f:{b4q}
}
