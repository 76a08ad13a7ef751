//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
)

// pausing calls pause before it ends.
type pausing struct {
	io.Reader
	pause func()
}

func (p *pausing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err == io.EOF && p.pause != nil {
		p.pause()
	}
	return n, err
}

func harnessOfFiles(path func(dir, resource string) string) fencetest.Harness {
	return fencetest.Harness{AnyKey: true, NewStore: func(t testing.TB) fencetest.Store {
		dir := t.TempDir()
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				return fence.File{Path: path(dir, resource)}.Write(ctx, token,
					&pausing{strings.NewReader(value), pause})
			},
			Read: func(_ context.Context, resource string) (string, error) {
				text, err := os.ReadFile(path(dir, resource))
				if errors.Is(err, fs.ErrNotExist) {
					err = nil
				}
				return string(text), err
			},
			Waiting: func(context.Context) (bool, error) { return fence.FlockWaits() > 0, nil },
		}
	}}
}

func TestFileConformance(t *testing.T) {
	fencetest.Run(t, harnessOfFiles(func(dir, resource string) string {
		return filepath.Join(dir, url.PathEscape(resource))
	}))
}

func TestFileHasItsMode(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f"), Mode: 0o600}
	if err := f.Write(t.Context(), 1, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{f.Path, f.Path + ".fence"} {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want the mode 0600", name, info.Mode(), err)
		}
	}
}

// TestFileAfterACrash has the files that a crash between token and rename leaves behind.
func TestFileAfterACrash(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	if err := f.Write(t.Context(), 5, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path+".fence", []byte("6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(t.Context(), 5, strings.NewReader("b")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Write with token 5 = %v; want ErrStale", err)
	}
	if err := f.Write(t.Context(), 6, strings.NewReader("c")); err != nil {
		t.Errorf("Write with token 6 = %v", err)
	}
}

// TestFileThatIsNoToken sees that a broken token lets nobody write.
func TestFileThatIsNoToken(t *testing.T) {
	for _, text := range []string{"", "\n", "x", "0", "-1", "9007199254740993", "5 5", "5\n\n"} {
		f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
		if err := os.WriteFile(f.Path+".fence", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := f.Write(t.Context(), fence.MaxToken, strings.NewReader("a"))
		if !errors.Is(err, fence.ErrUnavailable) ||
			!strings.Contains(err.Error(), f.Path+".fence") {
			t.Errorf("Write where the token is %q = %v; want ErrUnavailable that names the file",
				text, err)
		}
		if _, err := os.Stat(f.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something was written: %v", err)
		}
	}
}

// TestFileThatFailsIsAsItWas sees that a write that fails leaves the file, the token, and nothing
// else.
func TestFileThatFailsIsAsItWas(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	if err := f.Write(t.Context(), 5, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := f.Write(t.Context(), 9,
		io.MultiReader(strings.NewReader("b"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("Write = %v; want the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.Write(ctx, 9, &pausing{strings.NewReader("b"), cancel}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("Write = %v; want the context's error", err)
	}
	if err := f.Write(t.Context(), 4, failing{broken}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Write with an older token = %v; want ErrStale, and nothing read", err)
	}
	if err := (fence.File{}).Write(t.Context(), 5, nil); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Write without a path = %v; want ErrInvalid", err)
	}
	if text, err := os.ReadFile(f.Path); string(text) != "a" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
	if text, err := os.ReadFile(f.Path + ".fence"); string(text) != "5\n" || err != nil {
		t.Errorf("the token is %q, %v", text, err)
	}
	if left, err := filepath.Glob(f.Path + "*"); len(left) != 3 || err != nil {
		t.Errorf("in the directory are %v, %v; want the file, its token and its lock", left, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
