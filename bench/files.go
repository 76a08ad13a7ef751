package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openFlock locks a file for each key by the system call, and keeps the files, as scripts do.
func openFlock(_ context.Context, at site, _ time.Duration) (*locker, error) {
	return &locker{
		acquire: func(_ context.Context, key string) (held, error) {
			fd, err := unix.Open(filepath.Join(at.Directory, fmt.Sprintf("flock-%x", hashOf(key))),
				unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return held{}, err
			}
			for err = unix.EINTR; errors.Is(err, unix.EINTR); {
				err = unix.Flock(fd, unix.LOCK_EX)
			}
			return held{id: int64(fd)}, err
		},
		release: func(_ context.Context, h held) error { return unix.Close(int(h.id)) },
		close:   func() {},
	}, nil
}

// commandLine returns the command that runs a program under a driver's lock. bare has no lock.
func (e *env) commandLine(ctx context.Context, driver, key string) ([]string, error) {
	program := []string{"true"}
	switch driver {
	case bare:
		return program, nil
	case flock:
		return append([]string{"flock", filepath.Join(e.at.Directory, key)}, program...), nil
	case etcdctl:
		return append([]string{"etcdctl", "--endpoints", e.at.Etcd, "lock", key}, program...), nil
	}
	command, err := e.command(ctx)
	on := "file://" + e.at.Directory
	if driver == oursRedis {
		on = "redis://" + e.common.address
	}
	return append([]string{command, "run", "-q", "--on", on, key, "--"}, program...), err
}

// command returns the path of the command holdfast: beside this program, or built from this source.
func (e *env) command(ctx context.Context) (string, error) {
	if executable, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(executable), "holdfast")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path := filepath.Join(e.dir, "holdfast")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, err := output(exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path,
		"github.com/holdfast-go/holdfast/cmd/holdfast"))
	return path, err
}

// commands measures callers that run a program under one lock, over and over.
func commands(callers int) measurement {
	return func(ctx context.Context, e *env, driver string) (sample, error) {
		line, err := e.commandLine(ctx, driver, strings.ReplaceAll(e.key(), "/", "-"))
		if err != nil {
			return nil, err
		}
		once := func() error {
			cmd := exec.CommandContext(ctx, line[0], line[1:]...)
			cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line[0], err, out)
			}
			return nil
		}
		if err := once(); err != nil {
			return nil, err
		}
		used, start := cpuTime(unix.RUSAGE_CHILDREN), time.Now()
		times, err := timedBy(ctx, callers, e.span, 3, func(int) error { return once() })
		if err != nil {
			return nil, err
		}
		n := float64(len(times))
		s := sample{"runs": n / time.Since(start).Seconds(),
			"cpu": (cpuTime(unix.RUSAGE_CHILDREN) - used).Seconds() / n}
		s.addTimes(times)
		return s, nil
	}
}
