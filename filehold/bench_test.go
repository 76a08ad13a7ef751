//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() {
	roles["handoff"] = handoff
	roles["echo"] = echo
}

func BenchmarkAcquireRelease(b *testing.B) {
	backend := open(b, b.TempDir())
	ctx := context.Background()
	c := claim("benchmark")
	b.ReportAllocs()
	for b.Loop() {
		if r, err := backend.Acquire(ctx, c); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
		if r, err := backend.Release(ctx, c); err != nil || r.State != driver.Held {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkAcquireReleaseParallel acquires and releases keys of their own from many goroutines.
func BenchmarkAcquireReleaseParallel(b *testing.B) {
	backend := open(b, b.TempDir())
	ctx := context.Background()
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		c := claim(fmt.Sprint("benchmark", n.Add(1)))
		for pb.Next() {
			if r, err := backend.Acquire(ctx, c); err != nil || r.State != driver.Held {
				b.Error(r, err)
				return
			}
			if r, err := backend.Release(ctx, c); err != nil || r.State != driver.Held {
				b.Error(r, err)
				return
			}
		}
	})
}

// BenchmarkFloorAcquireRelease is the least that a lock in a file can do, without a token or a
// lease: make a file under a file lock, and remove it under the file lock.
func BenchmarkFloorAcquireRelease(b *testing.B) {
	dir := b.TempDir()
	fd, err := syscall.Open(filepath.Join(dir, "lock"),
		syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer syscall.Close(fd)
	key, content := filepath.Join(dir, "key"), make([]byte, 150)
	locked := func(f func()) {
		if err := syscall.Flock(fd, syscall.LOCK_EX); err != nil {
			b.Fatal(err)
		}
		f()
		syscall.Flock(fd, syscall.LOCK_UN)
	}
	for b.Loop() {
		locked(func() {
			fd, err := syscall.Open(key,
				syscall.O_CREAT|syscall.O_EXCL|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			syscall.Pwrite(fd, content, 0)
			syscall.Close(fd)
		})
		locked(func() { syscall.Unlink(key) })
	}
}

func BenchmarkRenewThousand(b *testing.B) {
	backend := open(b, b.TempDir())
	claims := make([]driver.Claim, 1000)
	for i := range claims {
		claims[i] = claim(fmt.Sprint("k", i))
		acquire(b, backend, claims[i])
	}
	for b.Loop() {
		for _, r := range renew(b, backend, claims...) {
			if r.State != driver.Held {
				b.Fatal(r)
			}
		}
	}
}

// takeTurn waits for the key and releases it.
func takeTurn(b *filehold.Backend, notices <-chan driver.Notice) {
	ctx := context.Background()
	c := queued("k")
	r, err := b.Acquire(ctx, c)
	check(err)
	if r.State == driver.Busy {
		beat := time.NewTicker(filehold.Presence / 3)
		defer beat.Stop()
		for granted := false; !granted; {
			select {
			case n := <-notices:
				granted = n.Owner == c.Owner
			case <-beat.C:
				r, err := b.Acquire(ctx, c)
				check(err)
				granted = r.State == driver.Held
			}
		}
	}
	_, err = b.Release(ctx, c)
	check(err)
}

// handoff takes turns until its standard input ends.
func handoff() {
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"))
	check(err)
	notices := listen(b)
	var end atomic.Bool
	go func() {
		waitForInput()
		end.Store(true)
	}()
	for !end.Load() {
		takeTurn(b, notices)
	}
	b.Close()
}

// BenchmarkHandoff has two processes take turns at one key; a turn of both counts as two.
func BenchmarkHandoff(b *testing.B) {
	dir := b.TempDir()
	backend := open(b, dir)
	notices := listen(backend)
	cmd := command("handoff", "FILEHOLD_TEST_DIR="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for members(b, dir) < 2 {
		takeTurn(backend, notices)
	}
	for b.Loop() {
		takeTurn(backend, notices)
	}
	stdin.Close()
	cmd.Wait()
}

// echo sends back what it gets.
func echo() {
	in := os.NewFile(3, "in")
	out := os.NewFile(4, "out")
	io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in})
}

// BenchmarkFloorHandoff passes a byte to another process and back through two pipes.
func BenchmarkFloorHandoff(b *testing.B) {
	toIn, toOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	fromIn, fromOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd := command("echo")
	cmd.ExtraFiles = []*os.File{toIn, fromOut}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1)
	for b.Loop() {
		if _, err := toOut.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(fromIn, buf); err != nil {
			b.Fatal(err)
		}
	}
	toIn.Close()
	toOut.Close()
	cmd.Wait()
}

// BenchmarkDeathToGrant kills the holder and waits for the grant.
func BenchmarkDeathToGrant(b *testing.B) {
	dir := b.TempDir()
	backend := open(b, dir)
	notices := listen(backend)
	var total time.Duration
	for b.Loop() {
		p := start(b, dir)
		p.acquire(claim("k"))
		c := queued("k")
		acquire(b, backend, c)
		began := time.Now()
		p.cmd.Process.Kill()
		granted(b, notices, c)
		total += time.Since(began)
		release(b, backend, c)
		p.kill()
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/death")
}
