package interop_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	theirlock "github.com/bsm/redislock"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	ourlock "github.com/holdfast-go/holdfast/with/redislock"
)

const ourRedislock = "github.com/holdfast-go/holdfast/with/redislock"

// lock is what a Lock of both libraries has.
type lock interface {
	Key() string
	Token() string
	Metadata() string
	TTL(context.Context) (time.Duration, error)
	Release(context.Context) error
}

// locking is a process, with either library.
type locking struct {
	obtain  func(ttl time.Duration, keys ...string) (lock, error)
	refresh func(lock, time.Duration) error
}

func unmovedLocks(t *testing.T, s *redistest.Server) locking {
	client := theirlock.New(newClient(t, s))
	return locking{func(ttl time.Duration, keys ...string) (lock, error) {
		return client.ObtainMulti(t.Context(), keys, ttl, &theirlock.Options{Metadata: "m"})
	}, func(l lock, ttl time.Duration) error {
		return l.(*theirlock.Lock).Refresh(t.Context(), ttl, nil)
	}}
}

func movedLocks(t *testing.T, s *redistest.Server) locking {
	client := ourlock.New(newClient(t, s))
	t.Cleanup(func() { client.Close() })
	return locking{func(ttl time.Duration, keys ...string) (lock, error) {
		return client.ObtainMulti(t.Context(), keys, ttl, &ourlock.Options{Metadata: "m"})
	}, func(l lock, ttl time.Duration) error {
		return l.(*ourlock.Lock).Refresh(t.Context(), ttl, nil)
	}}
}

// Processes of a fleet move one by one, and back, while all of them use one lock, and another one
// on two keys.
func TestFleetMovesToOurRedislock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fleet := make([]locking, 3)
	turns := func() {
		t.Helper()
		for i, p := range fleet {
			l, err := p.obtain(long, "a", "b")
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range fleet {
				for _, keys := range [][]string{{"a"}, {"b", "c"}} {
					_, err := other.obtain(long, keys...)
					if err != theirlock.ErrNotObtained && err != ourlock.ErrNotObtained {
						t.Fatalf("obtained beside process %d: %v", i, err)
					}
				}
			}
			if err := p.refresh(l, 2*long); err != nil {
				t.Error(err)
			}
			left, err := l.TTL(t.Context())
			if l.Key() != "a" || len(l.Token()) != 22 || l.Metadata() != "m" || err != nil ||
				left <= long || left > 2*long {
				t.Errorf("lock of %d: %q, %q, %q, %v, %v", i, l.Key(), l.Token(), l.Metadata(),
					left, err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for i := range fleet {
		fleet[i] = unmovedLocks(t, s)
	}
	for i := range fleet {
		turns()
		fleet[i] = movedLocks(t, s)
	}
	turns()
	fleet[0] = unmovedLocks(t, s)
	turns()
}

// Whatever the old package exports, the new one does, with the same types.
func TestSameAPIOfRedislock(t *testing.T) {
	t.Parallel()
	was, is := exported(t, "github.com/bsm/redislock"), exported(t, ourRedislock)
	if len(was) < 25 {
		t.Fatalf("only %d things are exported: %v", len(was), was)
	}
	for name, text := range was {
		if r := strings.TrimPrefix(name, "*"); r[0] >= 'a' {
			continue // a method of a type that is not
		}
		if is[name] != text {
			t.Errorf("%s is %q here, and was %q", name, is[name], text)
		}
	}
}

// The old library's own tests, as its module has them, against the new package: they take the place
// of the package's tests. Nothing of them is changed but the import, the address of the server,
// that a client is given without its wrapper, and times that a busy machine does not keep. Those
// that need a wrapper are left out, and the examples, which are about such times.
func TestTheirTestsOfRedislock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	changed := strings.NewReplacer(`"github.com/bsm/redislock"`, `"`+ourRedislock+`"`,
		"127.0.0.1:6379", s.Addr, "(t.Context(), rc, ", "(t.Context(), rc.Client, ",
		"(ctx, rc, ", "(ctx, rc.Client, ", "New(rc)", "New(rc.Client)",
		// What has to expire, and to be waited for.
		"(t, 5*time.Millisecond)", "(t, 3*time.Second)",
		"time.Sleep(10 * time.Millisecond)", "time.Sleep(4 * time.Second)",
		"(t.Context(), 20*time.Millisecond)", "(t.Context(), time.Second)",
		// What must not take longer.
		"(t, 20*time.Millisecond)", "(t, 20*time.Second)",
		"lockKey, 50*time.Millisecond, nil)", "lockKey, 50*time.Second, nil)",
		"backoff := 100 * time.Millisecond", "backoff := time.Minute")
	overlay := map[string]string{}
	ourDir := directory(t, ourRedislock)
	for _, name := range testFiles(t, ourDir) {
		overlay[name] = "" // is not there
	}
	dir := t.TempDir()
	for _, name := range testFiles(t, directory(t, "github.com/bsm/redislock")) {
		if filepath.Base(name) == "example_test.go" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(copied, []byte(changed.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(ourDir, "theirs_"+filepath.Base(name))] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-count=1", "-v", "-vet=off", "-overlay", file, "-skip",
		"_transient_error", ourRedislock).CombinedOutput()
	if passed := strings.Count(string(out), "\n--- PASS"); err != nil || passed < 20 {
		t.Errorf("%v, %d tests have passed:\n%s", err, passed, out)
	}
}

// directory is where a package is.
func directory(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func testFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}
