package withasynq

import (
	"context"
	"fmt"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/election"
)

// gate is a connection whose clients enqueue nothing after the lock of a term has ended.
type gate struct {
	redis asynq.RedisConnOpt
	term  election.Term

	// over ends with the lock. If the term ends on purpose, the lock ends later, because what is
	// being enqueued then should still be enqueued.
	over   context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	clients []redis.UniversalClient
}

func newGate(term election.Term, connection asynq.RedisConnOpt) *gate {
	g := &gate{redis: connection, term: term}
	g.over, g.cancel = context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-term.Done():
			g.cancel(term.Err())
		case <-g.over.Done(): // closed
		}
	}()
	return g
}

// MakeRedisClient makes a client, and has it ask before each command whether the lock is held.
func (g *gate) MakeRedisClient() any {
	made := g.redis.MakeRedisClient()
	client, ok := made.(redis.UniversalClient)
	if !ok {
		return made // asynq says what is wrong with it
	}
	client.AddHook(hook{g})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients = append(g.clients, client)
	return client
}

// close ends what the term has left behind, because a scheduler that failed to start does not close
// its client.
func (g *gate) close() {
	g.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, client := range g.clients {
		client.Close() // most are closed already, which is the only error
	}
}

// pass returns a context for a command, or why it must not be sent. The context ends with the lock,
// so that nothing is sent again after that.
func (g *gate) pass(ctx context.Context, command redis.Cmder) (context.Context, func(), error) {
	switch command.Name() {
	case "del", "zrem", // a scheduler's own entries, which nobody else removes
		"hello", "auth", "select", "client": // a connection for them
		return ctx, func() {}, nil
	}
	if err := g.term.Err(); err != nil {
		return nil, nil, fmt.Errorf("withasynq: %q is refused after the term: %w", command.Name(), err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(g.over, func() { cancel(context.Cause(g.over)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}, nil
}

type hook struct{ *gate }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		ctx, done, err := h.pass(ctx, command)
		if err != nil {
			command.SetErr(err)
			return err
		}
		defer done()
		return next(ctx, command)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		for _, command := range commands {
			passed, done, err := h.pass(ctx, command)
			if err != nil {
				for _, c := range commands {
					c.SetErr(err)
				}
				return err
			}
			defer done()
			ctx = passed
		}
		return next(ctx, commands)
	}
}
