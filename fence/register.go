package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// Register is a [Guard] in memory. It defines what a guard does, and stands in for a store in
// tests. The zero Register is ready for use. Many goroutines may use it at once. It forgets nothing
// while it exists.
type Register struct {
	mu    sync.Mutex
	cells map[string]*cell
}

var _ Guard = (*Register)(nil)

// cell is one resource. A goroutine that has sent to turn has the turn to write, and may use
// newest.
type cell struct {
	turn   chan struct{}
	newest Token
}

// Do implements [Guard]. The token counts as accepted even if write fails or panics, because part
// of the write may have been done. A nil write only advances the token.
func (r *Register) Do(ctx context.Context, resource string, token Token,
	write func(context.Context) error) error {
	if err := Validate(resource, token); err != nil {
		return err
	}
	c := r.cell(resource)
	if err := c.enter(ctx); err != nil {
		return fmt.Errorf("fence: write to %q: %w", resource, err)
	}
	defer c.leave()
	if token < c.newest {
		return &StaleError{Resource: resource, Token: token, Newest: c.newest}
	}
	c.newest = token
	if write == nil {
		return nil
	}
	return write(ctx)
}

// Newest returns the largest token that was accepted for the resource, or 0. It waits for a write
// that runs.
func (r *Register) Newest(resource string) Token {
	c := r.cell(resource)
	c.turn <- struct{}{}
	defer c.leave()
	return c.newest
}

func (r *Register) cell(resource string) *cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[resource]
	if c == nil {
		if r.cells == nil {
			r.cells = make(map[string]*cell)
		}
		c = &cell{turn: make(chan struct{}, 1)}
		r.cells[resource] = c
	}
	return c
}

// enter waits for the turn. With a context that has ended it fails, even if the turn is free.
func (c *cell) enter(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ending.Of(ctx)
	}
	if ctx.Err() != nil {
		c.leave()
		return ending.Of(ctx)
	}
	return nil
}

func (c *cell) leave() { <-c.turn }
