module github.com/holdfast-go/holdfast/redishold/interop

go 1.25.0

require (
	github.com/bsm/redislock v0.10.0
	github.com/go-redsync/redsync/v4 v4.17.0
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/redishold v0.0.0
	github.com/holdfast-go/holdfast/with/redislock v0.0.0
	github.com/holdfast-go/holdfast/with/redsync v0.0.0
	github.com/redis/go-redis/v9 v9.21.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/holdfast-go/holdfast/goredishold v0.0.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/holdfast-go/holdfast => ../../

replace github.com/holdfast-go/holdfast/goredishold => ../../goredishold

replace github.com/holdfast-go/holdfast/redishold => ../

replace github.com/holdfast-go/holdfast/with/redislock => ../../with/redislock

replace github.com/holdfast-go/holdfast/with/redsync => ../../with/redsync
