//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// copyDir makes a directory as it is after a power loss: with the ceiling that was synced, and what
// there is of the other files.
func copyDir(t *testing.T, from, ceiling string, counter []byte) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "locks")
	if err := os.CopyFS(to, regular{os.DirFS(from)}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "keys", "members", "fence"} {
		if err := os.Chmod(filepath.Join(to, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	fence := filepath.Join(to, "fence")
	for _, name := range fenceNames(t, fence) {
		if err := os.Remove(filepath.Join(fence, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(fence, ceiling), "")
	if counter != nil {
		write(t, filepath.Join(fence, "counter"), string(counter))
	}
	return to
}

func fenceNames(t *testing.T, fence string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(fence)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestTokensSurvivePowerLoss takes the machine's memory away, over and over, on systems that can
// tell one boot from the next and on those that cannot.
func TestTokensSurvivePowerLoss(t *testing.T) {
	for _, known := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "locks")
		var durable string
		filehold.OnSync(t, func(int) {
			if entries, err := os.ReadDir(filepath.Join(dir, "fence")); err == nil {
				for _, e := range entries {
					if e.Name() != "counter" {
						durable = e.Name()
					}
				}
			}
		})
		var highest uint64
		for boot := range byte(6) {
			filehold.SetBoot(t, boot, known)
			b := open(t, dir)
			var counter []byte
			for i := range 20 {
				if i == 5 {
					// Never synced: what the disk has of it is old.
					counter = read(t, filepath.Join(dir, "fence", "counter"))
				}
				c := claim("k")
				c.Block = 100
				c.Token = 1
				if i == 10 {
					c.Token = driver.Token(highest + 1<<40) // above the ceiling
				}
				r := acquire(t, b, c)
				if uint64(r.Token) <= highest {
					t.Fatalf("boot %d (known %v): token %d after %d", boot, known, r.Token, highest)
				}
				highest = uint64(r.Token) + 99
				release(t, b, c)
			}
			// Somebody holds a key when the power goes.
			acquire(t, b, claim("held"))
			highest++
			if boot%3 == 2 {
				counter = nil
			}
			dir = copyDir(t, dir, durable, counter)
		}
		b := open(t, dir)
		if r := acquire(t, b, claim("held")); r.Token == 0 {
			t.Errorf("a key of an earlier boot is still held: %+v", r)
		}
	}
}

// TestUnknownBootsShareTheTokens has processes that cannot tell boots apart, or tell them apart in
// different ways, use a directory by turns.
func TestUnknownBootsShareTheTokens(t *testing.T) {
	dir := t.TempDir()
	var backends []*filehold.Backend
	for boot := range byte(4) {
		filehold.SetBoot(t, boot, boot%2 == 0)
		backends = append(backends, open(t, dir))
	}
	var highest driver.Token
	for range 10 {
		for i, b := range backends {
			c := claim("k")
			c.Token = 1
			r := acquire(t, b, c)
			if r.State != driver.Held || r.Token <= highest {
				t.Fatalf("backend %d: %+v after token %d", i, r, highest)
			}
			highest = r.Token
			release(t, b, c)
		}
	}
}
