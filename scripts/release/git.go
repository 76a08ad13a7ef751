package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// git runs git in a directory and returns what it printed.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...))
}

// output runs a command and returns what it printed. Its error has what it said.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// checkClean wants the checkout to be what its commit says, files that git does not know included:
// what lies there only is in no release, and whoever tests would test it.
func checkClean(ctx context.Context, checkout string) error {
	status, err := git(ctx, checkout, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return fmt.Errorf("the checkout is not clean:\n%s", status)
	}
	return nil
}

// clone makes a clone of the checkout's commit in dir, which is committed to in the same name.
func clone(ctx context.Context, checkout, dir string) error {
	head, err := git(ctx, checkout, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := git(ctx, checkout, "clone", "--quiet", "--shared", "--no-tags", ".",
		dir); err != nil {
		return err
	}
	if _, err := git(ctx, dir, "checkout", "--quiet", "--detach", head); err != nil {
		return err
	}
	for _, key := range []string{"user.name", "user.email"} {
		// Without a value of its own the clone has that of the user, or git asks for it.
		value, err := git(ctx, checkout, "config", "--default", "", key)
		if err != nil {
			return err
		}
		if value == "" {
			continue
		}
		if _, err := git(ctx, dir, "config", key, value); err != nil {
			return err
		}
	}
	return nil
}
