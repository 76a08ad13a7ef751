module github.com/holdfast-go/holdfast/simulate

go 1.25.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/redishold v0.0.0
	github.com/yuin/gopher-lua v1.1.1
)

replace github.com/holdfast-go/holdfast => ../

replace github.com/holdfast-go/holdfast/redishold => ../redishold
