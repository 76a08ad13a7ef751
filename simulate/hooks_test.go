package simulate

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

// longestBlock is the longest that a hook blocks.
const longestBlock = 2 * time.Second

// hookPanic is what a hook panics with.
type hookPanic struct{}

const (
	hookSleeps = iota
	hookPanics
	hookReleases
	hookTries
	hookCloses
)

func hookDoes(what uint64) string {
	return [...]string{"blocks", "panics", "releases", "tries", "closes"}[what]
}

// hooks do what people do in hooks, and should not.
func (p *process) hooks() holdfast.Hooks {
	h := p.h
	return holdfast.Hooks{
		Acquired: func(e holdfast.AcquiredEvent) { p.hook(e.Key, wildPanics, 0.03) },
		Refused:  func(e holdfast.RefusedEvent) { p.hook(e.Key, wildPanics, 0.03) },
		Waiting: func(e holdfast.WaitingEvent) {
			if h.has(waitPanics) {
				p.hook(e.Key, waitPanics, 0.03)
			} else {
				p.hook(e.Key, wildPanics, 0.03)
			}
		},
		Renewed:    func(e holdfast.RenewedEvent) { p.hook(e.Key, wildPanics, 0.03) },
		Lost:       func(e holdfast.LostEvent) { p.hook(e.Key, wildPanics, 0.3) },
		HandedOver: func(e holdfast.HandedOverEvent) { p.hook(e.Key, wildPanics, 0.03) },
		Released:   func(e holdfast.ReleasedEvent) { p.hook(e.Key, wildPanics, 0.03) },
	}
}

// hook, with a chance, does one thing.
func (p *process) hook(key string, panics feature, chance float64) {
	h := p.h
	p.mu.Lock()
	x, what, long := p.r.Float64(), p.r.IntN(4), p.r.Float64()
	p.mu.Unlock()
	if x > chance || h.stopping() {
		return
	}
	k := h.user(key)
	did := func(what uint64) { h.ring.note(evHook, p.id, 0, k.index, what, 0) }
	switch {
	case what == 0 && h.has(hookBlocks):
		did(hookSleeps)
		time.Sleep(time.Duration(long * long * float64(longestBlock)))
	case what == 1 && h.has(panics):
		did(hookPanics)
		panic(hookPanic{})
	case what == 2 && h.has(hookCalls):
		if g := k.anyOf(p); g != nil && h.letGo(g) {
			did(hookReleases)
			g.lock.Release(p.base)
		}
	case what == 3 && h.has(hookCalls) && long < 0.1 && h.has(closes):
		did(hookCloses)
		p.reopen(true)
	case what == 3 && h.has(hookCalls):
		did(hookTries)
		if lock, err := p.open().locker.TryAcquire(p.base, key, p.asks(k)...); err == nil {
			lock.Release(context.Background())
		}
	}
}

// anyOf returns a lock of the process on the key, or nil.
func (k *keyState) anyOf(p *process) *grip {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.held() {
		for _, g := range s.open {
			if g.worker.proc == p {
				return g
			}
		}
	}
	return nil
}

// asks returns the options that every acquisition of the key needs.
func (p *process) asks(k *keyState) []holdfast.AcquireOption {
	if k.slots == nil {
		return nil
	}
	return []holdfast.AcquireOption{holdfast.WithPermits(p.permits(k))}
}
