package stores

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// files has a counter in each file of a directory.
type files struct{ dir string }

func openFile(at job.Stores) (Store, error) { return files{at.Dir}, nil }

func (s files) path(key string) string { return filepath.Join(s.dir, key) }
func (s files) twin(key string) string { return s.path(key) + ".twin" }

func (s files) Create(_ context.Context, keys []string) error {
	for _, key := range keys {
		for _, path := range []string{s.path(key), s.twin(key)} {
			if err := replace(path, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// Enter writes what is there. It reads that after the guard has let the writer in, while nobody
// else is in.
func (s files) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	same := &later{path: s.path(key)}
	if err := (fence.File{Path: s.path(key)}).Write(ctx, token, same); err != nil {
		return 0, err
	}
	return strconv.ParseUint(same.all, 10, 64)
}

func (s files) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	return fence.File{Path: s.path(key)}.Write(ctx, token, strings.NewReader(text(value)))
}

func (s files) Get(_ context.Context, key string) (uint64, error) { return number(s.path(key)) }

func (s files) Twin(_ context.Context, key string) (uint64, error) { return number(s.twin(key)) }

func (s files) SetTwin(_ context.Context, key string, value uint64) error {
	return replace(s.twin(key), value)
}

func (s files) Close() error { return nil }

// later reads a file that it opens only when it is read.
type later struct {
	path string
	all  string // the whole content
	text io.Reader
}

func (l *later) Read(p []byte) (int, error) {
	if l.text == nil {
		all, err := os.ReadFile(l.path)
		if err != nil {
			return 0, err
		}
		l.all = string(all)
		l.text = strings.NewReader(l.all)
	}
	return l.text.Read(p)
}

func text(value uint64) string { return strconv.FormatUint(value, 10) }

func number(path string) (uint64, error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(all), 10, 64)
}

// replace writes a whole file, as programs without a guard do.
func replace(path string, value uint64) error {
	beside := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(beside, []byte(text(value)), 0o644); err != nil {
		return err
	}
	return os.Rename(beside, path)
}
