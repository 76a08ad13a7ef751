// Package redis says what a mutex of package redsync is kept in. It takes the place of
// redsync/v4/redis.
package redis

import "github.com/holdfast-go/holdfast/driver"

// Pool is one Redis deployment, or another backend of Holdfast. A Pool of package goredis beside
// this one has a go-redis client.
type Pool interface {
	// Backend returns a backend for one Redsync, which closes it. It is called once, by the first
	// acquisition, or again if it has failed. Meanwhile all other calls of the Redsync wait, so it
	// must not wait for a server.
	Backend() (driver.Backend, error)
}

type pool struct{ backend driver.Backend }

func (p pool) Backend() (driver.Backend, error) { return p.backend, nil }

// NewPool returns a Pool over any backend: that of redishold.Open, which needs no go-redis client,
// or of memhold.New, for tests. Use it for one Redsync.
func NewPool(backend driver.Backend) Pool { return pool{backend} }
