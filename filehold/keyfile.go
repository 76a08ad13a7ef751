//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// The file of a key holds its record. A process needs the file's lock to change the record. A key
// that nobody holds or waits for has no file. A process removes the file under its lock. So a
// process that has locked a file looks whether the key's name still leads to it, and begins anew if
// not. It is not enough that the file has some name: that may be the temporary name of its maker,
// or that of a copy by hard links.
//
// A record is written to one of two places of its size, by turns. So a process that is killed while
// it writes leaves the older record in force. A renewal needs no new block, and goes on when the
// disk is full. A reader needs no lock. Larger records, from about a dozen claims on, have their
// places behind the smaller ones, each eight times as large.

const (
	keyPlace = 2048

	// largestKeyFile is beyond any queue that a machine can have. It is there because a damaged
	// file may be of any length.
	largestKeyFile = 256 << 20
)

// keyFile is the file of a key, locked.
type keyFile struct {
	path     string
	fd       int // -1: there is no file
	size     int64
	sequence uint64
	record   record
}

func keyName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// isKeyName reports whether a file of that name is the file of a key.
func isKeyName(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == 2*sha256.Size
}

// keyNames lists the files of the keys. Without their directory there are none: a cleaner has
// removed an empty one.
func (d *directory) keyNames() ([]string, error) {
	names, err := namesIn(d.keys)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return slices.DeleteFunc(names, func(name string) bool { return !isKeyName(name) }), err
}

// damaged is the error of a file that no death of a process explains. A claim in it may be in
// force, so nobody gets the key until a person has looked.
func damaged(path string) error {
	return fmt.Errorf("%s: %w; if nobody can hold its key any more, remove it", path, errDamaged)
}

// lockKey opens the file of a key and locks it. If the file is missing, lockKey makes it if create
// is true, and otherwise returns a keyFile without a file. If another process or Backend has the
// lock, lockKey calls wait, which gets it. temporary is a name to make files under.
func (d *directory) lockKey(name string, create bool, temporary string,
	wait func(fd int) error) (k keyFile, err error) {
	k = keyFile{path: d.keys + name}
	for {
		if k.fd, err = d.openKey(k.path, create, temporary); err != nil {
			if !create && errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return k, err
		}
		if err = tryFlock(k.fd, syscall.LOCK_EX); err == syscall.EWOULDBLOCK {
			err = wait(k.fd)
		}
		if err != nil {
			return k, os.NewSyscallError("flock", err)
		}
		if named, err := k.locked(); named || err != nil {
			return k, err
		}
	}
}

func (d *directory) openKey(path string, create bool, temporary string) (fd int, err error) {
	flags := syscall.O_RDWR
	if create && !d.shared {
		flags |= syscall.O_CREAT
	}
	for range 100 {
		fd, err = openFile(path, flags, d.fileMode)
		if !create || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		// Cleaners of temporary directories remove an empty one.
		if err := d.makeDir(filepath.Clean(d.keys)); err != nil {
			return -1, err
		}
		if !d.shared {
			continue
		}
		// The file gets its permissions before its name: no other user must find it without them.
		err := d.publish(temporary, path, nil, false)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return -1, err
		}
	}
	return fd, err
}

// locked reports whether a file that we have locked is still the key's, and closes it if not.
func (k *keyFile) locked() (named bool, err error) {
	st, err := statOpen(k.fd)
	if err == nil {
		named, err = isNamed(k.path, idOf(&st))
	}
	if !named || err != nil {
		k.close()
		return false, err
	}
	k.size = st.Size
	return true, nil
}

// load reads the record. It uses buf again.
func (k *keyFile) load(buf *[]byte) error {
	if k.fd < 0 || k.size == 0 {
		return nil
	}
	payload, err := k.read(buf)
	if err == nil && payload != nil {
		k.record, err = decodeRecord(payload)
		if err == nil && k.path[len(k.path)-2*sha256.Size:] != keyName(k.record.key) {
			err = errDamaged
		}
	}
	if errors.Is(err, errDamaged) {
		k.record = record{}
		return damaged(k.path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	return nil
}

// read returns the payload in force, or nil if no record was ever completed.
func (k *keyFile) read(buf *[]byte) (payload []byte, err error) {
	if k.size > largestKeyFile {
		return nil, errDamaged
	}
	b := slices.Grow((*buf)[:0], int(k.size))[:k.size]
	*buf = b
	n, err := readAt(k.fd, b, 0)
	if err != nil {
		return nil, err
	}
	first := errDamaged
	size := int64(keyPlace)
	for begin := int64(0); begin < int64(n); begin, size = begin+2*size, 8*size {
		for _, offset := range []int64{begin, min(begin+size, int64(n))} {
			sequence, p, err := unseal(b[offset:min(offset+size, int64(n))])
			if offset == 0 {
				first = err
			}
			if err == nil && (payload == nil || sequence > k.sequence) {
				k.sequence, payload = sequence, p
			}
		}
	}
	if payload == nil && (n > keyPlace || first != errShort) {
		return nil, errDamaged
	}
	// A file without a record is new, or its maker was killed before it had the key.
	return payload, nil
}

// place returns the offset of a record of that size, and where both places of that size end.
func place(size int, sequence uint64) (offset, end int64) {
	room := int64(keyPlace)
	for room < int64(size) {
		offset += 2 * room
		room *= 8
	}
	end = offset + 2*room
	if sequence%2 == 0 { // the first is 1
		offset += room
	}
	return offset, end
}

// empty makes a damaged file a new one. What is left behind a new record could damage it again.
func (k *keyFile) empty() error {
	err := interruptible(func() error { return sysFtruncate(k.fd, 0) })
	if err == nil {
		k.size, k.sequence = 0, 0
	}
	return os.NewSyscallError("ftruncate", err)
}

// store puts the record into force, or removes the file of a free key.
func (k *keyFile) store() error {
	if k.fd < 0 {
		return nil
	}
	if k.record.free() {
		return removeFile(k.path)
	}
	sealed := seal(k.sequence+1, k.record.encode())
	offset, end := place(len(sealed), k.sequence+1)
	// Both places take up their blocks before the first use, so that renewals need no new one. The
	// two smallest lie within one block, as a rule.
	if end > 2*keyPlace && k.size < end {
		if err := writeAt(k.fd, make([]byte, end-k.size), k.size); err != nil {
			return err
		}
	}
	return writeAt(k.fd, sealed, offset)
}

// close unlocks the file and closes it. A child that was just forked has it open too, so closing
// alone would not unlock it.
func (k *keyFile) close() {
	if k.fd >= 0 {
		unflock(k.fd)
		closeFile(k.fd)
		k.fd = -1
	}
}
