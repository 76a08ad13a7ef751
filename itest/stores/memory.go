package stores

import (
	"context"
	"errors"
	"net/rpc"
	"sync"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// Memory is what a service has in its memory: counters behind a fence.Register, and their twins.
type Memory struct {
	register fence.Register
	mu       sync.Mutex
	counters map[string]uint64
	twins    map[string]uint64
}

func newMemory() *Memory {
	return &Memory{counters: make(map[string]uint64), twins: make(map[string]uint64)}
}

// Args of a call to Memory.
type Args struct {
	Key   string // of the counter
	Token uint64 // of the caller's lock
	Write bool   // set Value; otherwise read
	Value uint64 // that is written
}

// Reply to a call to Memory.
type Reply struct {
	Value  uint64 // of the counter
	Stale  bool   // the guard has refused
	Newest uint64 // the token that it named, if Stale
}

// Guarded reads or writes a counter through the guard.
func (m *Memory) Guarded(args Args, reply *Reply) error {
	err := m.register.Do(context.Background(), args.Key, fence.Token(args.Token),
		func(context.Context) error {
			reply.Value = m.do(m.counters, args)
			return nil
		})
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		reply.Stale, reply.Newest = true, uint64(stale.Newest)
		return nil
	}
	return err
}

// Past reads a counter, bypassing the guard.
func (m *Memory) Past(args Args, reply *Reply) error {
	reply.Value = m.do(m.counters, Args{Key: args.Key})
	return nil
}

// Twin reads or writes a twin.
func (m *Memory) Twin(args Args, reply *Reply) error {
	reply.Value = m.do(m.twins, args)
	return nil
}

func (m *Memory) do(cells map[string]uint64, args Args) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if args.Write {
		cells[args.Key] = args.Value
	}
	return cells[args.Key]
}

// remembered is a client of Memory.
type remembered struct{ client *rpc.Client }

func openMemory(at job.Stores) (Store, error) {
	client, err := rpc.Dial("unix", at.Memory)
	return remembered{client}, err
}

// Create does nothing: what is not there is 0.
func (remembered) Create(context.Context, []string) error { return nil }

func (r remembered) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	return r.call(ctx, "Memory.Guarded", Args{Key: key, Token: uint64(token)})
}

func (r remembered) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	_, err := r.call(ctx, "Memory.Guarded", Args{Key: key, Token: uint64(token), Write: true,
		Value: value})
	return err
}

func (r remembered) Get(ctx context.Context, key string) (uint64, error) {
	return r.call(ctx, "Memory.Past", Args{Key: key})
}

func (r remembered) Twin(ctx context.Context, key string) (uint64, error) {
	return r.call(ctx, "Memory.Twin", Args{Key: key})
}

func (r remembered) SetTwin(ctx context.Context, key string, value uint64) error {
	_, err := r.call(ctx, "Memory.Twin", Args{Key: key, Write: true, Value: value})
	return err
}

func (r remembered) call(ctx context.Context, method string, args Args) (uint64, error) {
	var reply Reply
	call := r.client.Go(method, args, &reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if call.Error == nil && reply.Stale {
		return 0, &fence.StaleError{Resource: args.Key, Token: fence.Token(args.Token),
			Newest: fence.Token(reply.Newest)}
	}
	return reply.Value, call.Error
}

func (r remembered) Close() error { return r.client.Close() }
