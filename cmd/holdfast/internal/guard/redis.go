package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/redishold"
)

// redis keeps each resource in a key of its own.
type redis struct {
	client rueidis.Client
	prefix string
	guard  redisfence.Guard
}

// OpenRedis connects to the deployment of a URL that redishold takes, and returns the store whose
// keys are the resources behind the prefix. It may take as long as redishold may take to connect.
func OpenRedis(url, prefix string) (Store, error) {
	option, err := redishold.ClientOption(url)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fence.ErrUnavailable, err)
	}
	eval := func(ctx context.Context, script string, keys []string, args []any) (any, error) {
		command := client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).
			Arg(redisfence.Strings(args)...).Build()
		return client.Do(ctx, command).ToAny()
	}
	return &redis{client, prefix, redisfence.Guard{Eval: eval}}, nil
}

// Init makes nothing: it only asks the server for an answer.
func (r *redis) Init(ctx context.Context) error {
	return r.client.Do(ctx, r.client.B().Ping().Build()).Error()
}

func (r *redis) Advance(ctx context.Context, resource string, token fence.Token) error {
	_, err := r.guard.Do(ctx, r.prefix+resource, token)
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		stale.Resource = resource
	}
	return err
}

func (r *redis) Newest(ctx context.Context, resource string) (fence.Token, error) {
	text, err := r.client.Do(ctx, r.client.B().Get().Key(r.prefix+resource).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the stored token is %.40q", fence.ErrUnavailable, text)
	}
	return fence.Token(n), nil
}

func (r *redis) Close() error {
	r.client.Close()
	return nil
}
