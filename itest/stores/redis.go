package stores

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// redisStore has a counter in a string, with the token in a key beside, or both in a hash.
type redisStore struct {
	client *redis.Client
	guard  redisfence.Guard
}

func onRedis(field string) func(job.Stores) (Store, error) {
	return func(at job.Stores) (Store, error) {
		// It must not repeat a command that may have been executed.
		client := redis.NewClient(&redis.Options{Addr: at.Redis, MaxRetries: -1,
			ContextTimeoutEnabled: true, ReadTimeout: bound, WriteTimeout: bound})
		eval := func(ctx context.Context, script string, keys []string, args []any) (any, error) {
			return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
		}
		return redisStore{client, redisfence.Guard{Eval: eval, Field: field}}, nil
	}
}

// Names of keys. Several forms share the server.
func (s redisStore) resource(key string) string {
	if s.guard.Field != "" {
		return "hash:" + key
	}
	return "{" + key + "}:fence"
}

func (s redisStore) twin(key string) string { return "twin:" + s.resource(key) }

func (s redisStore) get(key string) redisfence.Command {
	if s.guard.Field != "" {
		return redisfence.Command{"HGET", s.resource(key), "value"}
	}
	return redisfence.Command{"GET", "{" + key + "}"}
}

func (s redisStore) set(key string, value uint64) redisfence.Command {
	if s.guard.Field != "" {
		return redisfence.Command{"HSET", s.resource(key), "value", value}
	}
	return redisfence.Command{"SET", "{" + key + "}", value}
}

func (s redisStore) Create(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := s.client.Do(ctx, s.set(key, 0)...).Err(); err != nil {
			return err
		}
		if err := s.SetTwin(ctx, key, 0); err != nil {
			return err
		}
	}
	return nil
}

func (s redisStore) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	replies, err := s.guard.Do(ctx, s.resource(key), token, s.get(key))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fmt.Sprint(replies[0]), 10, 64)
}

func (s redisStore) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	_, err := s.guard.Do(ctx, s.resource(key), token, s.set(key, value))
	return err
}

func (s redisStore) Get(ctx context.Context, key string) (uint64, error) {
	return s.client.Do(ctx, s.get(key)...).Uint64()
}

func (s redisStore) Twin(ctx context.Context, key string) (uint64, error) {
	return s.client.Get(ctx, s.twin(key)).Uint64()
}

func (s redisStore) SetTwin(ctx context.Context, key string, value uint64) error {
	return s.client.Set(ctx, s.twin(key), value, 0).Err()
}

func (s redisStore) Close() error { return s.client.Close() }
