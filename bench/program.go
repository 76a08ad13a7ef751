package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed foreign
var foreign embed.FS

// program is a lock library of another language, in a process that measures itself: asking it for every single
// pair would cost more than the pair. It says "ready", and then answers lines of four words with a line of JSON each:
//
//	span KEY MILLISECONDS CONCURRENCY   pairs on the key for so long; as many loops as that at once, on keys of their own
//	count KEY PAIRS CONCURRENCY         so many pairs
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *strings.Builder
}

// programRun is what a program says of a run.
type programRun struct {
	Pairs, Seconds, CPU, P50, P99 float64 // times in seconds; CPU is processor time
}

// pythonPath is Debian's Python, since it is Debian's package of the client that is installed.
const pythonPath = "/usr/bin/python3"

func openProgram(ctx context.Context, name, dir, address string) (*program, error) {
	p := &program{stderr: new(strings.Builder)}
	url := "redis://" + address
	if name == redisPy {
		p.cmd = exec.CommandContext(ctx, pythonPath, "redispy.py", url)
	} else {
		p.cmd = exec.CommandContext(ctx, "node", "redlock.mjs", url)
	}
	p.cmd.Dir = dir
	p.cmd.Stderr = p.stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := start(p.cmd); err != nil {
		return nil, err
	}
	if _, err := p.line(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// installPrograms writes the programs into a directory, with the libraries that npm gets for them.
func installPrograms(ctx context.Context, parent string, npm bool) (dir string, err error) {
	dir = filepath.Join(parent, "foreign")
	if err := os.CopyFS(parent, foreign); err != nil || !npm {
		return dir, err
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("npm ci, for the driver %s: %w: %s", redlockNode, err, out)
	}
	return dir, nil
}

func (p *program) line() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.in.Close()
		p.cmd.Wait()
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), err, strings.TrimSpace(p.stderr.String()))
	}
	return line, nil
}

func (p *program) run(order, key string, number int64, concurrency int) (r programRun, err error) {
	fmt.Fprintln(p.in, order, key, number, concurrency)
	line, err := p.line()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(line), &r)
}

var errProgram = errors.New("a library of another language is measured in its own process only")

func (p *program) acquire(context.Context, string) (held, error) { return held{}, errProgram }
func (p *program) release(context.Context, held) error           { return errProgram }

func (p *program) close() {
	p.in.Close()
	timer := time.AfterFunc(grace, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	p.cmd.Wait()
}

// measure is latency and throughput of a program.
func (p *program) measure(e *env, concurrency int) (sample, error) {
	key := e.key()
	if _, err := p.run("count", key, int64(e.warm), concurrency); err != nil {
		return nil, err
	}
	before, err := e.info()
	if err != nil {
		return nil, err
	}
	r, err := p.run("span", key, e.span.Milliseconds(), concurrency)
	if err != nil {
		return nil, err
	}
	after, err := e.info()
	if err != nil {
		return nil, err
	}
	s := sample{
		"pairs": r.Pairs / r.Seconds, "p50": r.P50 * 1e6, "p99": r.P99 * 1e6, "client": r.CPU * 1e6 / r.Pairs,
		"allocs": math.NaN(),
	}
	s.addServer(e, before, after, r.Pairs)
	if concurrency > 1 {
		return s, nil
	}
	watch, err := e.monitor()
	if err != nil {
		return nil, err
	}
	if _, err := p.run("count", key, int64(e.counted), concurrency); err != nil {
		return nil, err
	}
	sent, inner, err := watch.stop()
	s["commands"], s["inner"] = sent/float64(e.counted), inner/float64(e.counted)
	return s, err
}

// addServer adds what the servers say about n pairs between two times.
func (s sample) addServer(e *env, before, after info, n float64) {
	s["in"] = (after["total_net_input_bytes"] - before["total_net_input_bytes"]) / n
	s["out"] = (after["total_net_output_bytes"] - before["total_net_output_bytes"]) / n
	s["server"] = (after.cpu() - before.cpu()) * 1e6 / n
	// The questions themselves were some.
	s["reads"] = (after["total_reads_processed"] - before["total_reads_processed"] - float64(len(e.nodes))) / n
}
