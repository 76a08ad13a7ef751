// Package goredis makes pools for package redsync of go-redis clients. It takes the place of
// redsync/v4/redis/goredis/v9.
package goredis

import (
	goredislib "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

type pool struct{ client goredislib.UniversalClient }

func (p pool) Backend() (driver.Backend, error) {
	backend, err := goredishold.New(p.client)
	if err != nil {
		return nil, err
	}
	return backend, nil
}

// NewPool returns a Pool over client: a *redis.Client, a failover client among them, or a
// *redis.ClusterClient. Locks fail with holdfast.ErrInvalid if it is another one, as
// goredishold.New does. The client stays the caller's, also when a Redsync is closed.
func NewPool(client goredislib.UniversalClient) redis.Pool { return pool{client} }
