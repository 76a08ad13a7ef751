module github.com/holdfast-go/holdfast/redishold

go 1.25.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/sys v0.47.0
)

replace github.com/holdfast-go/holdfast => ../
