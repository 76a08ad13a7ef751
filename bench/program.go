package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed foreign
var foreign embed.FS

//go:embed foreign/package.json
var packageJSON []byte

// program is a lock library in another language, in a process that measures itself: a request for
// each pair would cost more than the pair. It writes "ready", and then answers each line of four
// words with a line of JSON:
//
//	span KEY MILLISECONDS CONCURRENCY   pairs for so long
//	count KEY PAIRS CONCURRENCY         so many pairs in each loop
//
// CONCURRENCY is the number of loops at once, each on a key of its own. redispy.py has one loop.
type program struct{ *child }

// programRun is the answer of a program.
type programRun struct {
	Pairs, Seconds, CPU, P50, P99 float64 // times in seconds; CPU is processor time
}

// pythonPath is Debian's Python, because the client is installed as a package of Debian.
const pythonPath = "/usr/bin/python3"

func openProgram(ctx context.Context, name, dir, address string) (*locker, error) {
	cmd := exec.CommandContext(ctx, "node", "redlock.mjs", "redis://"+address)
	if name == redisPy {
		cmd = exec.CommandContext(ctx, pythonPath, "redispy.py", "redis://"+address)
	}
	cmd.Dir = dir
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	_, err = c.line()
	return &locker{program: &program{c}, close: func() { stopAll(c) }}, err
}

// installPrograms writes the programs to a directory. With npm it also gets the libraries of
// redlock.
func installPrograms(ctx context.Context, parent string, npm bool) (dir string, err error) {
	dir = filepath.Join(parent, "foreign")
	if err := os.CopyFS(parent, foreign); err != nil || !npm {
		return dir, err
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline",
		"--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("npm ci, for the driver %s: %w: %s", redlockNode, err, out)
	}
	return dir, nil
}

func (p *program) run(order, key string, number int64, concurrency int) (r programRun, err error) {
	line, err := p.ask(order, key, number, concurrency)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(line), &r)
}

// measure is load.measure for a program.
func (p *program) measure(e *env, l load) (sample, error) {
	key := e.key()
	if _, err := p.run("count", key, int64(max(l.warm, 1)), l.goroutines); err != nil {
		return nil, err
	}
	m, err := e.meter()
	if err != nil {
		return nil, err
	}
	r, err := p.run("span", key, e.span.Milliseconds(), l.goroutines)
	if err != nil {
		return nil, err
	}
	s := sample{"pairs": r.Pairs / r.Seconds, "p50": r.P50, "p99": r.P99}
	if err := m.stop(s, r.Pairs); err != nil {
		return nil, err
	}
	s["client"] = r.CPU / r.Pairs
	if l.counted == 0 {
		return s, nil
	}
	return s, e.count(s, float64(l.counted), func() error {
		_, err := p.run("count", key, int64(l.counted), l.goroutines)
		return err
	})
}
