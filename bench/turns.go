package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// measureAll makes the drivers take turns. A driver that hangs is left out from then on. A driver
// that fails gets its next turn, because a short stall of the machine can cause an error; the error
// is still reported.
func (s *scenario) measureAll(ctx context.Context, e *env) *results {
	r := &results{s, make(map[string][]sample), make(map[string]error)}
	leave, err := e.enter(ctx, s)
	if err != nil {
		r.errors["server"] = err
		return r
	}
	defer leave()
	for round := range cmp.Or(s.rounds, e.rounds) {
		for _, name := range s.drivers {
			out := errors.Is(r.errors[name], errStuck) || s.peerRounds > 0 &&
				round >= s.peerRounds && slices.Contains(peers, name)
			if out || ctx.Err() != nil {
				continue
			}
			measured, err := s.measureOnce(ctx, e, name)
			if ctx.Err() == nil {
				r.take(name, measured, err)
			}
		}
	}
	if err := e.reset(); err != nil {
		r.errors["server"] = err
	}
	return r
}

// take adds the result of a driver's turn.
func (r *results) take(name string, measured sample, err error) {
	if err != nil {
		r.errors[name] = err
		return
	}
	if slices.Contains(outside, name) && name != redisPy && name != redlockNode {
		// These drivers do not use the Redis server.
		for _, metric := range []string{"server", "reads", "commands", "inner", "in", "out"} {
			delete(measured, metric)
		}
	}
	r.samples[name] = append(r.samples[name], r.scenario.inUnits(measured))
}

// grace is how long a measurement or a server may take to end.
const grace = 3 * time.Second

var errStuck = errors.New("it is stuck")

// measureOnce bounds a measurement. The libraries get contexts that do not end, and some then wait
// for ever. Closing the driver ends that.
func (s *scenario) measureOnce(ctx context.Context, e *env, name string) (sample, error) {
	type outcome struct {
		sample sample
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		measured, err := s.measure(ctx, e, name)
		done <- outcome{measured, err}
	}()
	allowed := cmp.Or(s.patience, e.patience)
	patience := time.NewTimer(allowed)
	defer patience.Stop()
	reason := fmt.Errorf("%w: no end after %v", errStuck, allowed)
	select {
	case o := <-done:
		return o.sample, o.err
	case <-patience.C:
	case <-ctx.Done():
		reason = ctx.Err()
		select {
		case <-done:
			return nil, reason
		case <-time.After(grace):
		}
	}
	if l := e.forget(name); l != nil {
		go l.close()
	}
	select {
	case <-done:
	case <-time.After(grace): // give up: its goroutine stays
	}
	return nil, reason
}
