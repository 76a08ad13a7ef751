package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// site is where drivers connect to.
type site struct {
	Redis    []string // addresses; several are nodes of a quorum
	Etcd     string   // address
	Postgres string   // URL

	NodeTimeout time.Duration // of a quorum; 0 for its default
}

// enter makes ready what the scenario measures on. leave takes it away again.
func (e *env) enter(ctx context.Context, s *scenario) (leave func(), err error) {
	e.nodes, e.proxies = e.common, nil
	leave = func() {
		for _, p := range e.proxies {
			p.stop()
		}
		if s.nodes > 0 {
			for _, n := range e.nodes {
				n.stop()
			}
		}
	}
	if s.nodes > 0 {
		e.nodes = nil
	}
	for range s.nodes {
		e.files++
		dir := filepath.Join(e.dir, fmt.Sprintf("node%d", e.files))
		if err := os.Mkdir(dir, 0o700); err != nil {
			leave()
			return nil, err
		}
		n, err := startServer(ctx, dir)
		if err != nil {
			leave()
			return nil, err
		}
		e.nodes = append(e.nodes, n)
	}
	e.at = e.outside
	e.at.NodeTimeout = e.nodeTimeout
	for i, n := range e.nodes {
		address := n.address
		if i < s.proxies {
			p, err := startProxy(ctx, address)
			if err != nil {
				leave()
				return nil, err
			}
			e.proxies = append(e.proxies, p)
			if err := p.delay(s.delay); err != nil {
				leave()
				return nil, err
			}
			address = p.address
		}
		e.at.Redis = append(e.at.Redis, address)
	}
	return leave, nil
}

// flush empties the nodes.
func (e *env) flush() error {
	for _, n := range e.nodes {
		if _, err := n.do("FLUSHALL"); err != nil {
			return err
		}
	}
	return nil
}

// info asks the nodes and returns the sums. Each answer counts the question in its commands, and in the next
// one's bytes.
func (e *env) info() (info, error) {
	sum := make(info)
	for _, n := range e.nodes {
		fields, err := n.info()
		if err != nil {
			return nil, err
		}
		for name, value := range fields {
			sum[name] += value
		}
	}
	return sum, nil
}

// monitors count on all nodes.
type monitors []*monitor

func (e *env) monitor() (all monitors, err error) {
	for _, n := range e.nodes {
		m, err := n.monitor()
		if err != nil {
			all.stop()
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (all monitors) stop() (sent, inner float64, err error) {
	var errs []error
	for _, m := range all {
		s, i, err := m.stop()
		sent, inner = sent+s, inner+i
		errs = append(errs, err)
	}
	return sent, inner, errors.Join(errs...)
}

// locksLeft counts the keys of locks on all nodes, and not what Holdfast keeps beside them.
func (e *env) locksLeft() (left int, err error) {
	for _, n := range e.nodes {
		locks, _, err := n.keys()
		if err != nil {
			return 0, err
		}
		left += locks
	}
	return left, nil
}

// awaitAnswer waits until the node answers new connections, and connects to it again.
func (s *server) awaitAnswer(ctx context.Context) error {
	for {
		w, err := dial(s.address)
		if err == nil {
			if _, err = w.do("PING"); err == nil {
				s.wire.close()
				s.wire = w
				return nil
			}
			w.close()
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
