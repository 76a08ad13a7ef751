// Package oddcontext has contexts of a caller's own kind, for tests of what happens if such a
// context panics, ends the goroutine that calls it, or calls back.
package oddcontext

import (
	"context"
	"sync/atomic"
	"time"
)

// Context acts once when it is called, by any method. Otherwise it is as the context inside. It is
// safe for concurrent use.
type Context struct {
	context.Context
	act  func()
	left atomic.Int64
}

// New returns a context that calls act in the at-th call of it, counted from 1. If at is 0, it does
// not until it is armed.
func New(inside context.Context, at int, act func()) *Context {
	c := &Context{Context: inside, act: act}
	c.Arm(at)
	return c
}

// Arm has the context act in the at-th call from now on; 0: in none.
func (c *Context) Arm(at int) { c.left.Store(int64(at)) }

// count acts if it is time.
func (c *Context) count() {
	if c.left.Add(-1) == 0 {
		c.act()
	}
}

// Deadline implements context.Context. As with the methods below, it counts as a call, and returns
// what the context inside returns.
func (c *Context) Deadline() (time.Time, bool) { c.count(); return c.Context.Deadline() }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { c.count(); return c.Context.Done() }

// Err implements context.Context.
func (c *Context) Err() error { c.count(); return c.Context.Err() }

// Value implements context.Context.
func (c *Context) Value(key any) any { c.count(); return c.Context.Value(key) }
