//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() { roles["open"] = openAsUser }

// nobody is a user that owns nothing in these tests.
const nobody = 65534

// openAsUser opens FILEHOLD_TEST_DIR as the user FILEHOLD_TEST_USER, with the umask 077, acquires
// and releases a key, and says what went wrong.
func openAsUser() {
	if user := os.Getenv("FILEHOLD_TEST_USER"); user != "" {
		uid, err := strconv.Atoi(user)
		check(err)
		check(syscall.Setgid(uid))
		check(syscall.Setuid(uid))
	}
	syscall.Umask(0o077)
	var options []filehold.Option
	if os.Getenv("FILEHOLD_TEST_SHARED") != "" {
		options = append(options, filehold.WithSharedDirectory())
	}
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"), options...)
	if err != nil {
		fmt.Printf("%v permanent=%v permission=%v", err, driver.Permanent(err),
			errors.Is(err, fs.ErrPermission))
		return
	}
	ctx := context.Background()
	c := claim("k")
	if r, err := b.Acquire(ctx, c); err != nil || r.State != driver.Held {
		fmt.Print(r, err)
	}
	if os.Getenv("FILEHOLD_TEST_KEEP") != "" {
		return // dies with the key
	}
	if r, err := b.Release(ctx, c); err != nil || r.State != driver.Held {
		fmt.Print(r, err)
	}
	b.Close()
}

func runOpen(t *testing.T, env ...string) string {
	t.Helper()
	out, err := command("open", env...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// refused opens dir, which must fail with a permanent error that says all of these.
func refused(t *testing.T, dir string, is error, says ...string) {
	t.Helper()
	b, err := filehold.Open(dir)
	if err == nil {
		b.Close()
		t.Errorf("Open(%q) succeeded; want an error that says %q", dir, says)
		return
	}
	var e *driver.Error
	if !driver.Permanent(err) || !errors.Is(err, driver.ErrUnavailable) || !errors.As(err, &e) {
		t.Errorf("Open(%q): %v; want a permanent *driver.Error that is ErrUnavailable", dir, err)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("Open(%q): %v; want an error that is %v", dir, err, is)
	}
	for _, s := range append(says, dir) {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("Open(%q): %v; want it to say %q", dir, err, s)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// made returns a directory that was used and closed.
func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "locks")
	open(t, dir).Close()
	return dir
}

func TestOpenMakesDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	b := open(t, dir)
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("made %v, %v; want mode 0700", info.Mode(), err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v; want nothing for others", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	b.Close()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		if !slices.Contains(filehold.FenceNames, e.Name()) {
			t.Errorf("unexpected file %s", e.Name())
		}
	}
	open(t, dir)
}

func TestOpenRefuses(t *testing.T) {
	base := t.TempDir()
	t.Run("nil option", func(t *testing.T) {
		if _, err := filehold.Open(base, filehold.WithSharedDirectory(), nil); !errors.Is(err,
			driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "option 2 is nil: leave it out") {
			t.Errorf("Open: %v; want a permanent error that says so", err)
		}
	})
	t.Run("no name", func(t *testing.T) { refused(t, "", nil, `""`) })
	t.Run("no parent", func(t *testing.T) {
		refused(t, filepath.Join(base, "a", "b"), fs.ErrNotExist, "does not exist",
			filepath.Join(base, "a"))
	})
	t.Run("dangling link", func(t *testing.T) {
		link := filepath.Join(base, "link")
		if err := os.Symlink(filepath.Join(base, "nowhere"), link); err != nil {
			t.Fatal(err)
		}
		refused(t, link, fs.ErrNotExist, "cannot be found")
	})
	t.Run("loop of links", func(t *testing.T) {
		link := filepath.Join(base, "loop")
		if err := os.Symlink(link, link); err != nil {
			t.Fatal(err)
		}
		refused(t, link, syscall.ELOOP, link)
	})
	for _, mode := range []fs.FileMode{0o777, 0o777 | fs.ModeSticky} {
		t.Run(fmt.Sprintf("another's link in a directory of mode %v", mode), func(t *testing.T) {
			public, ours := t.TempDir(), t.TempDir()
			if err := os.Chmod(public, mode); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(public, "locks")
			if err := os.Symlink(ours, link); err != nil {
				t.Fatal(err)
			}
			open(t, link).Close() // our own
			if os.Geteuid() != 0 {
				return // only root can make a link of another user
			}
			if err := os.Lchown(link, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			refused(t, link, fs.ErrPermission, link, fmt.Sprintf("belongs to user %d", nobody))
			if _, err := filehold.Open(filepath.Join(link, "below")); !errors.Is(err,
				fs.ErrPermission) {
				t.Errorf("Open below the link: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(ours, "below")); err == nil {
				t.Error("a directory was made below the link of another")
			}
			if err := os.Chown(public, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			open(t, link).Close() // of whose the directory is
		})
	}
	t.Run("file", func(t *testing.T) {
		file := filepath.Join(base, "file")
		write(t, file, "")
		refused(t, file, syscall.ENOTDIR, "not a directory")
	})
	t.Run("below a file", func(t *testing.T) {
		refused(t, filepath.Join(base, "file", "x"), syscall.ENOTDIR, "not a directory")
	})
	t.Run("for everybody", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, fs.ErrPermission, "everybody", "sticky", "drwxrwxrwx")
		if _, err := filehold.Open(dir, filehold.WithSharedDirectory()); err == nil ||
			!strings.Contains(err.Error(), "sticky") {
			t.Errorf("shared: %v", err)
		}
		if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
	})
	t.Run("foreign", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "locks")
		owner := 0
		if os.Geteuid() == 0 {
			owner = nobody
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, owner, owner); err != nil {
				t.Fatal(err)
			}
		} else {
			dir = "/" // who else would own it
		}
		refused(t, dir, fs.ErrPermission, fmt.Sprintf("belongs to user %d", owner),
			fmt.Sprintf("runs as user %d", os.Geteuid()), "WithSharedDirectory")
	})
	t.Run("other files", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "thesis.tex"), "")
		refused(t, dir, nil, "other files", "thesis.tex")
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("the directory now holds %v", names)
		}
	})
	for _, other := range []string{"1", "2", "next"} {
		t.Run("layout "+other, func(t *testing.T) {
			dir := made(t)
			write(t, filepath.Join(dir, "holdfast"), "holdfast lock directory, layout "+other+"\n")
			refused(t, dir, nil, "has layout "+strconv.Quote(other), "understands layout 4",
				"stop all processes that use it", "remove the directory",
				"name another one for all of them")
		})
	}
	t.Run("other marker", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "holdfast"), "my notes\n")
		refused(t, dir, nil, "no lock directory")
	})
	t.Run("fence gone", func(t *testing.T) {
		dir := made(t)
		if err := os.RemoveAll(filepath.Join(dir, "fence")); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, fs.ErrNotExist, "fence", "tokens could go back")
	})
	t.Run("keys is a file", func(t *testing.T) {
		dir := made(t)
		if err := os.Remove(filepath.Join(dir, "keys")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "keys"), "")
		refused(t, dir, syscall.ENOTDIR, "keys", "not a directory")
	})
	t.Run("network", func(t *testing.T) {
		filehold.SetNetworkFS(t, "NFS")
		refused(t, t.TempDir(), nil, "network file system (NFS)", "local directory")
	})
	t.Run("read-only", func(t *testing.T) {
		heal := filehold.FailMkfifo(t, syscall.EROFS)
		defer heal()
		refused(t, t.TempDir(), syscall.EROFS, "unavailable: no named pipe can be made: mkfifo ",
			"read-only file system")
	})
	t.Run("no named pipes", func(t *testing.T) {
		heal := filehold.FailMkfifo(t, syscall.EPERM)
		defer heal()
		refused(t, t.TempDir(), syscall.EPERM, "no named pipe can be made: mkfifo ",
			"operation not permitted")
	})
	if runtime.GOOS == "linux" && os.Geteuid() == 0 { // others have no permission there
		t.Run("nobody can create it", func(t *testing.T) {
			refused(t, "/proc/holdfast", nil,
				"it does not exist, and cannot be created: mkdir /proc/holdfast: ")
		})
	}
	t.Run("other clock", func(t *testing.T) {
		dir := t.TempDir()
		filehold.SetClock(t, 1)
		b := open(t, dir)
		filehold.SetClock(t, 2)
		refused(t, dir, nil, "another clock")
		filehold.SetClock(t, 0)
		refused(t, dir, nil, "this process cannot read /proc")
		b.Close()
		c := open(t, dir)
		filehold.SetClock(t, 1)
		refused(t, dir, nil, "a process that uses it cannot read /proc")
		c.Close()
		open(t, dir)
	})
}

// TestPipesTellNothingOfOtherMachines leaves the pipe of a member that has another clock, and that
// nobody has open here. On a file system that two kernels may share, it may live on the other.
func TestPipesTellNothingOfOtherMachines(t *testing.T) {
	dir := made(t)
	filehold.SetClock(t, 1)
	left := filepath.Join(dir, "members", "02"+strings.Repeat("0", 30))
	if err := syscall.Mkfifo(left, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("many kernels", func(t *testing.T) {
		filehold.SetManyKernels(t)
		refused(t, dir, nil, "another clock", "on another machine", "remove "+left)
	})
	open(t, dir)
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a dead member left is there: %v", err)
	}
}

// TestOpenWithoutPermission opens directories as a user who may not write to them.
func TestOpenWithoutPermission(t *testing.T) {
	// In a directory that the permissions of those above do not let others reach.
	base := reachable(t)
	own, locked := filepath.Join(base, "own"), filepath.Join(base, "locked")
	for _, dir := range []string{own, locked} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := asNobody(t, own)
	if err := os.Chmod(own, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(own, 0o755) })
	for dir, says := range map[string][]string{
		own: {"not writable for user", "dr-xr-xr-x", "permission denied",
			"permanent=true", "permission=true"},
		filepath.Join(own, "missing"): {"cannot be created", "dr-xr-xr-x", "permission denied",
			"permanent=true", "permission=true"},
	} {
		out := runOpen(t, append(env, "FILEHOLD_TEST_DIR="+dir)...)
		for _, s := range says {
			if !strings.Contains(out, s) {
				t.Errorf("Open(%q): %q; want it to say %q", dir, out, s)
			}
		}
	}
}

// reachable returns a directory that every user may search.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "filehold")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asNobody returns the environment that makes a process run as a user who is not root, and gives
// dir to that user.
func asNobody(t *testing.T, dir string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return []string{fmt.Sprint("FILEHOLD_TEST_USER=", nobody)}
}

// TestSharedDirectory uses a directory from two users, if we may become another, and else from one,
// with a umask that keeps others out.
func TestSharedDirectory(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777 | fs.ModeSticky, 0o770 | fs.ModeSetgid} {
		dir := filepath.Join(reachable(t), "locks")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		env := []string{"FILEHOLD_TEST_SHARED=1", "FILEHOLD_TEST_DIR=" + dir}
		if os.Geteuid() == 0 {
			if err := os.Chown(dir, 0, nobody); err != nil {
				t.Fatal(err)
			}
			env = append(env, fmt.Sprint("FILEHOLD_TEST_USER=", nobody))
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		old := syscall.Umask(0o077)
		b, err := filehold.Open(dir, filehold.WithSharedDirectory())
		if err != nil {
			syscall.Umask(old)
			t.Fatal(err)
		}
		c := claim("k")
		want(t, "ours", acquire(t, b, c), driver.Held)
		want(t, "ours", release(t, b, c), driver.Held)
		syscall.Umask(old)
		if out := runOpen(t, env...); out != "" {
			t.Errorf("mode %v: another user: %s", mode, out)
		}
		// This user dies with a key, which we free, and has made files that we may use.
		if out := runOpen(t, append(env, "FILEHOLD_TEST_KEEP=1")...); out != "" {
			t.Errorf("mode %v: another user: %s", mode, out)
		}
		want(t, "after him", acquire(t, b, c), driver.Held)
		want(t, "after him", release(t, b, c), driver.Held)
		filehold.Tick(b)
		eventually(t, "what he left is removed", func() bool { return members(t, dir) == 1 })
		b.Close()
		if out := runOpen(t, env...); out != "" {
			t.Errorf("mode %v: another user alone: %s", mode, out)
		}
	}
}

// TestLeftOverOfAnotherUser has one user's process die while it sets up a directory that everybody
// may use. Another user's process cleans up after it.
func TestLeftOverOfAnotherUser(t *testing.T) {
	dir := filepath.Join(reachable(t), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"keys", "members", "fence"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	left := filepath.Join(dir, "members", strings.Repeat("0a", 16)+".tmp")
	write(t, left, "")
	env := []string{"FILEHOLD_TEST_SHARED=1", "FILEHOLD_TEST_DIR=" + dir}
	if os.Geteuid() == 0 {
		env = append(env, fmt.Sprint("FILEHOLD_TEST_USER=", nobody))
	}
	if out := runOpen(t, env...); out != "" {
		t.Errorf("another user: %s", out)
	}
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
}

// TestSpellingsOfOneDirectory opens a directory by several names. All are one.
func TestSpellingsOfOneDirectory(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "locks")
	holder := open(t, dir)
	first := claim("k")
	acquire(t, holder, first)
	link := filepath.Join(base, "link")
	if err := os.Symlink("locks", link); err != nil {
		t.Fatal(err)
	}
	indirect := filepath.Join(base, "indirect")
	if err := os.Symlink(link, indirect); err != nil {
		t.Fatal(err)
	}
	t.Chdir(base)
	identity, err := holder.Identity(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir + "/", dir + "//.", "locks", "./locks/", "locks/../locks",
		link, link + "/", "link", indirect, base + "/./link/../locks"} {
		b := open(t, name)
		if r := acquire(t, b, claim("k")); r.State != driver.Busy || r.Holder != first.Owner {
			t.Errorf("%s: %+v; want it held by the first", name, r)
		}
		if id, err := b.Identity(context.Background()); id != identity || err != nil {
			t.Errorf("%s: identity %q, %v; want %q", name, id, err, identity)
		}
		if b.Dir() != holder.Dir() {
			t.Errorf("%s: path %s; want %s", name, b.Dir(), holder.Dir())
		}
		b.Close()
	}
	other := open(t, filepath.Join(base, "other"))
	want(t, "another directory", acquire(t, other, claim("k")), driver.Held)
	if id, _ := other.Identity(context.Background()); id == identity {
		t.Errorf("another directory has the same identity %q", id)
	}
	// The link leads elsewhere now. A process that came by it stays where it is.
	b := open(t, link)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", link); err != nil {
		t.Fatal(err)
	}
	want(t, "after the link was changed", acquire(t, b, claim("k")), driver.Busy)
}

// TestManyOpenAtOnce opens a directory that does not exist many times at the same time.
func TestManyOpenAtOnce(t *testing.T) {
	for range 10 {
		dir := filepath.Join(t.TempDir(), "locks")
		var done sync.WaitGroup
		var mu sync.Mutex
		held := 0
		for range 8 {
			done.Go(func() {
				b, err := filehold.Open(dir)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { b.Close() })
				r, err := b.Acquire(context.Background(), claim("k"))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if r.State == driver.Held {
					held++
				}
			})
		}
		done.Wait()
		if held != 1 {
			t.Fatalf("%d hold the key; want one", held)
		}
	}
}

// TestDirectoryRemoved takes everything away under a holder.
func TestDirectoryRemoved(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, dir string, b *filehold.Backend) error{
		"removed": func(_ *testing.T, dir string, _ *filehold.Backend) error {
			return os.RemoveAll(dir)
		},
		"moved": func(_ *testing.T, dir string, _ *filehold.Backend) error {
			return os.Rename(dir, dir+".old")
		},
		"replaced": func(t *testing.T, dir string, _ *filehold.Backend) error {
			err := os.Rename(dir, dir+".old")
			open(t, dir)
			return err
		},
		"emptied": func(t *testing.T, dir string, _ *filehold.Backend) error {
			for _, name := range filehold.FenceNames {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					return err
				}
			}
			return nil
		},
		"without members": func(_ *testing.T, dir string, _ *filehold.Backend) error {
			return os.RemoveAll(filepath.Join(dir, "members"))
		},
		"without our file": func(_ *testing.T, _ string, b *filehold.Backend) error {
			return os.Remove(filehold.MemberFile(b))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "locks")
			b := open(t, dir)
			c, d := claim("k"), claim("other")
			acquire(t, b, c)
			acquire(t, b, d)
			if err := remove(t, dir, b); err != nil {
				t.Fatal(err)
			}
			for i, r := range renew(t, b, c, d) {
				want(t, fmt.Sprint("renewal ", i), r, driver.Lost)
			}
			want(t, "release", release(t, b, c), driver.Lost)
			_, err := b.Acquire(context.Background(), claim("k"))
			if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) ||
				!strings.Contains(err.Error(), "removed or replaced") {
				t.Errorf("acquire: %v; want a permanent error that says what happened", err)
			}
			// Nothing more is made where the directory was.
			b.Acquire(context.Background(), claim("later"))
			if _, err := os.Lstat(filehold.KeyFile(b, "later")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file of a key in a directory that was lost: %v", err)
			}
			// A process that comes now is served.
			want(t, "new holder", acquire(t, open(t, dir), claim("k")), driver.Held)
			want(t, "renewal", renew(t, b, c)[0], driver.Lost)
		})
	}
	t.Run("counter", func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, dir)
		c := claim("k")
		before := acquire(t, b, c).Token
		if err := os.Remove(filepath.Join(dir, "fence", "counter")); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir)
		want(t, "renewal", renew(t, b, c)[0], driver.Held)
		for _, b := range []*filehold.Backend{b, again} {
			c := claim("other")
			r := acquire(t, b, c)
			if r.Token <= before {
				t.Errorf("token %d after %d", r.Token, before)
			}
			before = r.Token
			release(t, b, c)
		}
	})
	t.Run("key", func(t *testing.T) {
		b := open(t, t.TempDir())
		c := claim("k")
		acquire(t, b, c)
		if err := os.Remove(filehold.KeyFile(b, "k")); err != nil {
			t.Fatal(err)
		}
		want(t, "renewal", renew(t, b, c)[0], driver.Lost)
		want(t, "next", acquire(t, b, claim("k")), driver.Held)
	})
}

// TestDamagedKey damages the file of one key.
func TestDamagedKey(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, other := claim("k"), claim("other")
	acquire(t, b, c)
	acquire(t, b, other)
	renew(t, b, c) // both places are used
	file := filehold.KeyFile(b, "k")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.Repeat("x", int(info.Size())))
	ctx := context.Background()
	if _, err := b.Acquire(ctx, claim("k")); !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("acquire: %v; want an error that names %s", err, file)
	}
	results := renew(t, b, other, c, other)
	want(t, "renewal", results[0], driver.Held)
	want(t, "renewal", results[2], driver.Held)
	if r := results[1]; r.State != driver.Unknown || r.Err == nil {
		t.Errorf("renewal: %+v; want an error", r)
	}
	if _, err := b.Inspect(ctx, "k"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("inspect: %v; want an error that names %s", err, file)
	}
	want(t, "another key", release(t, b, other), driver.Held)
	// The file of another key is as bad.
	acquire(t, b, other)
	content, err := os.ReadFile(filehold.KeyFile(b, "other"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(content))
	if _, err := b.Acquire(ctx, claim("k")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("acquire: %v; want an error that names %s", err, file)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(t, "after it was removed", acquire(t, b, claim("k")), driver.Held)
}

// TestDamagedKeyOfTheDead damages the file of a key that no process can hold: it disturbs nobody.
func TestDamagedKeyOfTheDead(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.acquire(claim("k"))
	p.kill()
	files, err := filepath.Glob(filepath.Join(dir, "keys", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	write(t, files[0], strings.Repeat("x", 5000))
	want(t, "after all have died", acquire(t, open(t, dir), claim("k")), driver.Held)
}

// TestDamagedKeyOfNobody damages the file of a key that nobody else can hold: whoever acquires it
// also keeps it and gives it back, even if the file was longer than a file of a key may be.
func TestDamagedKeyOfNobody(t *testing.T) {
	for _, length := range []int64{5000, 300 << 20} {
		b, c := open(t, t.TempDir()), claim("k")
		file := filehold.KeyFile(b, "k")
		write(t, file, strings.Repeat("x", 5000))
		if err := os.Truncate(file, length); err != nil {
			t.Fatal(err)
		}
		want(t, "acquisition", acquire(t, b, c), driver.Held)
		want(t, "renewal", renew(t, b, c)[0], driver.Held)
		want(t, "release", release(t, b, c), driver.Held)
	}
}

// TestDamagedKeyThatIsNotGranted damages the file of a key that nobody can hold, and then lets its
// acquisition fail: no file is left of it.
func TestDamagedKeyThatIsNotGranted(t *testing.T) {
	b, c := open(t, t.TempDir()), claim("k")
	write(t, filehold.KeyFile(b, "k"), strings.Repeat("x", 5000))
	filehold.FailSync(t)
	c.Token = driver.Token(time.Now().Add(time.Hour).UnixMicro()) // above the ceiling
	if _, err := b.Acquire(context.Background(), c); !errors.Is(err, syscall.EIO) {
		t.Errorf("acquire: %v; want EIO", err)
	}
	if n := keyFiles(t, b.Dir()); n != 0 {
		t.Errorf("%d files of keys after an acquisition that failed; want none", n)
	}
}

// TestKeyThatIsNoFile puts something else in the place of the file of a key: a look at it returns,
// and an error names it.
func TestKeyThatIsNoFile(t *testing.T) {
	b := open(t, t.TempDir())
	path := filehold.KeyFile(b, "k")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Inspect(context.Background(), "k"); err != nil { // it must not wait for a writer
		t.Error("named pipe:", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, errInspect := b.Inspect(context.Background(), "k")
	_, errAcquire := b.Acquire(context.Background(), claim("k"))
	for _, err := range []error{errInspect, errAcquire} {
		if !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), path) {
			t.Errorf("directory: %v; want an error that names %s", err, path)
		}
	}
}

// TestFailingDisk lets every sync fail. A process that needs a token above the ceiling is told, and
// the others go on.
func TestFailingDisk(t *testing.T) {
	b := open(t, t.TempDir())
	c := claim("k")
	acquire(t, b, c)
	heal := filehold.FailSync(t)
	above := claim("above")
	above.Token = driver.Token(time.Now().Add(time.Hour).UnixMicro())
	_, err := b.Acquire(context.Background(), above)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, syscall.EIO) ||
		driver.Permanent(err) {
		t.Errorf("acquire: %v; want a passing error that wraps EIO", err)
	}
	if n := keyFiles(t, b.Dir()); n != 1 {
		t.Errorf("%d files of keys after an acquisition that failed; want 1", n)
	}
	below := claim("below")
	want(t, "below the ceiling", acquire(t, b, below), driver.Held)
	want(t, "renewal", renew(t, b, c)[0], driver.Held)
	// A waiter that cannot be given its tokens gets the key later.
	w := queued("k")
	w.Token = above.Token
	want(t, "waiter", acquire(t, b, w), driver.Busy)
	want(t, "release", release(t, b, c), driver.Held)
	if _, err := b.Acquire(context.Background(), w); !errors.Is(err, syscall.EIO) {
		t.Errorf("waiter: %v; want EIO", err)
	}
	heal()
	want(t, "waiter", acquire(t, b, w), driver.Held)
	if r := acquire(t, b, above); r.State != driver.Held || r.Token < above.Token {
		t.Errorf("above: %+v", r)
	}
}

// TestLongestTTL claims for as long as there are numbers for.
func TestLongestTTL(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	first, second := claim("k"), queued("k")
	first.TTL, second.TTL = math.MaxInt64, math.MaxInt64
	want(t, "first", acquire(t, a, first), driver.Held)
	r := acquire(t, b, second)
	want(t, "second", r, driver.Busy)
	if r.ExpiresIn <= 0 || r.Presence <= 0 {
		t.Errorf("the second is told %+v", r)
	}
	want(t, "renewal", renew(t, a, first)[0], driver.Held)
	want(t, "second again", acquire(t, b, second), driver.Busy)
	want(t, "release", release(t, a, first), driver.Held)
	want(t, "second at last", acquire(t, b, second), driver.Held)
}

// TestTokensStayExactInJSON proposes tokens at the end of what they may be.
func TestTokensStayExactInJSON(t *testing.T) {
	b := open(t, t.TempDir())
	c := claim("k")
	c.Token, c.Block = 1<<53-100, 50
	if r := acquire(t, b, c); r.Token != c.Token {
		t.Errorf("token %d, want %d", r.Token, c.Token)
	}
	ctx := context.Background()
	c.Token, c.Block = 1, 51
	if _, err := b.Acquire(ctx, c); !driver.Permanent(err) ||
		!strings.Contains(err.Error(), "2^53") {
		t.Errorf("beyond the end: %v; want a permanent error", err)
	}
	c.Block = 50
	if r := acquire(t, b, c); r.Token != 1<<53-50 {
		t.Errorf("token %d, want %d", r.Token, int64(1<<53-50))
	}
	for _, change := range []func(c *driver.Claim){
		func(c *driver.Claim) { c.Token = 1 << 53 },
		func(c *driver.Claim) { c.Block = 1 << 53 },
		func(c *driver.Claim) { c.Key = "" },
		func(c *driver.Claim) { c.Key = strings.Repeat("k", driver.MaxKeyLen+1) },
		func(c *driver.Claim) { c.Owner = "" },
		func(c *driver.Claim) { c.Owner = strings.Repeat("o", 600) },
		func(c *driver.Claim) { c.TTL = time.Microsecond },
	} {
		bad := claim("bad")
		change(&bad)
		if _, err := b.Acquire(ctx, bad); !driver.Permanent(err) ||
			!errors.Is(err, driver.ErrInvalid) {
			t.Errorf("acquire %.20q, TTL %v, token %d, block %d: %v; want ErrInvalid", bad.Key,
				bad.TTL, bad.Token, bad.Block, err)
		}
	}
}

// TestSpellingThroughLinkAndBack spells directories as the system understands it: the .. of a
// symbolic link is the parent of what it leads to. One of them does not exist before.
func TestSpellingThroughLinkAndBack(t *testing.T) {
	tmp := t.TempDir()
	for _, name := range []string{"a", "a/b", "a/locks"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a/b", filepath.Join(tmp, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(tmp)
	for _, name := range []string{"locks", "new"} {
		want(t, name, acquire(t, open(t, tmp+"/link/../"+name+"/."), claim("k")), driver.Held)
		want(t, name+", as it is", acquire(t, open(t, filepath.Join(tmp, "a", name)), claim("k")),
			driver.Busy)
		want(t, name+", relative", acquire(t, open(t, "link/../"+name), claim("k")), driver.Busy)
	}
}

// TestMarkerIsNoFile has a named pipe in the place of the marker. Open does not wait for a process
// to write to it.
func TestMarkerIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "holdfast"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, driver.ErrUnavailable, "holdfast", "no lock directory")
}

// TestSharedDirectoryHalfMade has the process that makes a shared directory die before others may
// use what is in it. When the same user opens it again, they may.
func TestSharedDirectoryHalfMade(t *testing.T) {
	dir := shareable(t)
	subs := []string{"keys", "members", "fence"}
	for _, sub := range subs {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, filehold.WithSharedDirectory())
	for _, sub := range subs {
		if info, err := os.Stat(filepath.Join(dir, sub)); err != nil ||
			info.Mode().Perm() != 0o770 {
			t.Errorf("%s: %v, %v; want mode 0770", sub, info.Mode(), err)
		}
	}
}

// TestLinkInPlaceOfWhatIsNew: another user of a shared directory puts a link in place of what was
// just made there, before that has its permissions. The target of the link keeps its own
// permissions: a user who may write to the directory can take locks away, and no more.
func TestLinkInPlaceOfWhatIsNew(t *testing.T) {
	for what, link := range map[string]struct {
		suffix string
		make   func(target, path string) error
	}{
		"symbolic link for a pipe":      {".tmp", os.Symlink},
		"hard link for a pipe":          {".tmp", os.Link},
		"symbolic link for a directory": {"/keys", os.Symlink},
	} {
		outside := t.TempDir()
		dir, err := filepath.EvalSymlinks(shareable(t))
		if err != nil {
			t.Fatal(err)
		}
		target := outside
		if link.suffix == ".tmp" {
			target = filepath.Join(outside, "secret")
			write(t, target, "")
		}
		before, err := os.Lstat(target)
		if err != nil {
			t.Fatal(err)
		}
		replaced := false
		filehold.AfterMake(t, func(path string) {
			if !strings.HasPrefix(path, dir) || !strings.HasSuffix(path, link.suffix) || replaced {
				return
			}
			replaced = true
			err := os.Remove(path)
			if err == nil {
				err = link.make(target, path)
			}
			if err != nil {
				t.Error(err)
			}
		})
		b, err := filehold.Open(dir, filehold.WithSharedDirectory())
		if err == nil {
			b.Close()
		}
		after, errAfter := os.Lstat(target)
		if errAfter != nil {
			t.Fatal(errAfter)
		}
		if !replaced || err == nil || after.Mode() != before.Mode() {
			t.Errorf("%s (made: %v): open: %v; what it leads to has mode %v; want %v", what,
				replaced, err, after.Mode(), before.Mode())
		}
	}
}

// TestOtherVersionMarksFirst: a process of another version makes the same new directory at the same
// time, and marks it first. The two would not exclude each other, so this one gives way.
func TestOtherVersionMarksFirst(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, "holdfast")
	const theirs = "holdfast lock directory, layout 999\n"
	filehold.InsteadOfSync(t, dir, func() error {
		return os.WriteFile(marker, []byte(theirs), 0o600)
	})
	b, err := filehold.Open(dir)
	if err == nil {
		b.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `has layout "999"`) {
		t.Errorf("open: %v; want an error that names the layout", err)
	}
	if text, err := os.ReadFile(marker); string(text) != theirs {
		t.Errorf("the marker says %q (%v); want %q", text, err, theirs)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "members"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind in members: %v (%v)", entries, err)
	}
}
