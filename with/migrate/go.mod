module github.com/holdfast-go/holdfast/with/migrate

go 1.25.0

require (
	github.com/golang-migrate/migrate/v4 v4.19.1
	github.com/holdfast-go/holdfast v0.0.0
)

replace github.com/holdfast-go/holdfast => ../../
