package goredis_test

import (
	"log"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis/goredis/v9"
)

func ExampleNewPool() {
	client := goredislib.NewClient(&goredislib.Options{Addr: "localhost:6379"})
	defer client.Close()
	rs := redsync.New(goredis.NewPool(client))
	defer rs.Close() // leaves the client open

	mutex := rs.NewMutex("my-global-mutex")
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	defer mutex.Unlock()
}
