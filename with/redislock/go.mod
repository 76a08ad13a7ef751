module github.com/holdfast-go/holdfast/with/redislock

go 1.25.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/goredishold v0.0.0
	github.com/redis/go-redis/v9 v9.19.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/holdfast-go/holdfast/redishold v0.0.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace github.com/holdfast-go/holdfast => ../../

replace github.com/holdfast-go/holdfast/goredishold => ../../goredishold

replace github.com/holdfast-go/holdfast/redishold => ../../redishold
