package redis_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

// A test of code that takes a *redsync.Redsync needs no server.
func ExampleNewPool() {
	rs := redsync.New(redis.NewPool(memhold.New()))
	defer rs.Close()

	mutex := rs.NewMutex("my-global-mutex")
	fmt.Println("locked:", mutex.Lock() == nil)
	fmt.Println("taken:", rs.NewMutex("my-global-mutex").TryLock() != nil)
	mutex.Unlock()
	// Output:
	// locked: true
	// taken: true
}
