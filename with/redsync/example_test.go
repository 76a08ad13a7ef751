package redsync_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

func Example() {
	pool := redis.NewPool(memhold.New()) // in a program: goredis.NewPool(client)
	rs := redsync.New(pool)
	defer rs.Close()

	mutex := rs.NewMutex("my-global-mutex")
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	var taken *redsync.ErrTaken
	err := rs.NewMutex("my-global-mutex").TryLock()
	fmt.Println("taken:", errors.As(err, &taken))

	// What is new: a token for the store that the lock protects.
	fmt.Println("there is a token:", mutex.Held().Token() > 0)

	if ok, err := mutex.Unlock(); !ok || err != nil {
		log.Fatal("unlock failed: ", err)
	}
	// Output:
	// taken: true
	// there is a token: true
}
