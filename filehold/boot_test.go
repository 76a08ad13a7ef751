//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// copyDir makes what a directory is after a power loss: files that were synced, and what there is of the others.
func copyDir(t *testing.T, from string, fence []byte) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "locks")
	if err := os.CopyFS(to, regular{os.DirFS(from)}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "fence"), fence, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestTokensSurvivePowerLoss takes the machine's memory away, over and over, on systems that tell one boot from the next and on
// those that do not.
func TestTokensSurvivePowerLoss(t *testing.T) {
	for _, known := range []bool{true, false} {
		var durable []byte
		filehold.OnSync(t, func(fence []byte) { durable = fence })
		dir := filepath.Join(t.TempDir(), "locks")
		var highest uint64
		for boot := range byte(6) {
			filehold.SetBoot(t, boot, known)
			b := open(t, dir)
			var counter []byte
			for i := range 20 {
				if i == 5 {
					// Never synced: what the disk has of it is old.
					counter = read(t, filepath.Join(dir, "mutex"))
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
			before := dir
			dir = copyDir(t, before, durable)
			if boot%3 == 2 {
				counter = nil
			}
			if boot%3 > 0 {
				write(t, filepath.Join(dir, "mutex"), string(counter))
			}
		}
		b := open(t, dir)
		if r := acquire(t, b, claim("held")); r.Token == 0 {
			t.Errorf("a key of an earlier boot is still held: %+v", r)
		}
	}
}
