//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"syscall"
	"testing"
)

// Lose takes key from its holder, as if its lease had run out. Waiters stay.
func Lose(t testing.TB, b *Backend, key string) {
	done := make(chan error, 1)
	b.core.post(func(t *turn) {
		var buf [2 * keyPlace]byte
		var scratch []byte
		var k keyFile
		err := t.loadKey(&k, key, buf[:])
		if err == nil {
			k.record.holder = nil
			err = t.storeKey(&k, &scratch)
			k.close()
		}
		done <- err
	})
	if err := <-done; err != nil {
		t.Errorf("lose %q: %v", key, err)
	}
}

// Stall takes the mutex of the directory that b has open, as a process that is stopped at the wrong moment does, until
// resume is called.
func Stall(t testing.TB, b *Backend) (resume func()) {
	fd, err := openFile(b.core.dir.path+"/"+mutexName, syscall.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := mutex{fd: fd}
	if err := m.lock(nil); err != nil {
		t.Fatal(err)
	}
	return func() { closeFile(fd) }
}
