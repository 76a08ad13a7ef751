//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// The file of a key holds its record. There is none for a key that nobody holds or waits for.
//
// A record that fits into keyPlace bytes is written to one of two places, by turns. So a process that is killed while it
// writes leaves the older record in force, as if it had not begun; renewing needs no new block, so it goes on when the
// disk is full; and the file system has nothing to put on the disk at once, as it would for a file that is renamed over
// another. A larger record, which takes a dozen waiters, goes to a new file that replaces the old one.

const (
	keyPlace = 2048

	// replaceName is where a file is made that replaces another.
	replaceName = "replace" + temporarySuffix
)

// keyFile is the file of a key, read. Its methods are for those who hold the mutex.
type keyFile struct {
	path     string
	fd       int // -1: there is no file, or none that counts
	sequence uint64
	place    int  // of the record in force
	large    bool // the record in force takes more than a place
	record   record
}

func keyName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// isKeyName reports whether a file of that name is the file of a key.
func isKeyName(name string) bool { return len(name) == 2*sha256.Size }

// damaged is the error of a file that no accident explains that we know of. What it says may be in force, so
// nobody gets the key until somebody has looked.
func damaged(path string) error {
	return fmt.Errorf("%s: %w; if nobody can hold its key any more, remove it", path, errDamaged)
}

// loadKey reads the file of a key into k; close it. buf is for two places.
func (d *directory) loadKey(k *keyFile, key string, buf []byte) error {
	if err := d.loadFile(k, keyName(key), buf); err != nil {
		return err
	}
	switch k.record.key {
	case key:
		return nil
	case "":
		k.record.key = key
		return nil
	}
	k.close()
	return damaged(k.path)
}

// loadFile is loadKey by the name of the file; the record has no key if there is none.
func (d *directory) loadFile(k *keyFile, name string, buf []byte) (err error) {
	*k = keyFile{path: d.keys + name, fd: -1}
	k.fd, err = openFile(k.path, syscall.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	payload, err := k.read(buf)
	if err == nil && payload == nil {
		// Whoever made the file was killed before it was whole, and told nobody that it has the key.
		k.close()
		return removeFile(k.path)
	}
	if err == nil {
		k.record, err = decodeRecord(payload)
	}
	if err == nil && k.record.key == "" {
		err = errDamaged
	}
	if errors.Is(err, errDamaged) {
		err = damaged(k.path)
	}
	if err != nil {
		k.close()
	}
	return err
}

// read returns the payload in force; nil if no record was ever completed.
func (k *keyFile) read(buf []byte) ([]byte, error) {
	n, err := readAt(k.fd, buf, 0)
	if err != nil {
		return nil, err
	}
	sequence, payload, size, err := unseal(buf[:min(n, keyPlace)])
	if size > keyPlace {
		// Never written in place, so never half. What is in the second place belongs to it.
		if n == len(buf) {
			whole := make([]byte, size)
			copy(whole, buf)
			m, err := readAt(k.fd, whole[min(n, size):], int64(n))
			if err != nil {
				return nil, err
			}
			buf, n = whole, n+m
		}
		k.large = true
		k.sequence, payload, _, err = unseal(buf[:min(n, size)])
		if err == errShort {
			err = errDamaged
		}
		return payload, err
	}
	if err == nil {
		k.sequence, k.place = sequence, 0
	}
	if n > keyPlace {
		if sequence, second, _, err2 := unseal(buf[keyPlace:n]); err2 == nil && (err != nil || sequence > k.sequence) {
			k.sequence, k.place = sequence, 1
			return second, nil
		}
	} else if err == errShort {
		return nil, nil
	}
	if err != nil {
		return nil, errDamaged
	}
	return payload, nil
}

// store puts the record into force. buf is scratch space.
func (d *directory) storeKey(k *keyFile, buf *[]byte) error {
	if k.record.free() {
		if k.fd < 0 {
			return nil
		}
		k.close()
		return removeFile(k.path)
	}
	k.sequence++
	*buf = seal((*buf)[:0], k.sequence, k.record.append(nil))
	sealed := *buf
	switch {
	case k.fd < 0 && len(sealed) <= keyPlace:
		fd, err := d.create(k.path, syscall.O_RDWR)
		if err != nil {
			return err
		}
		k.fd = fd
		if err := writeAt(fd, sealed, 0); err != nil {
			k.close()
			removeFile(k.path)
			return err
		}
		return nil
	case k.fd >= 0 && len(sealed) <= keyPlace && !k.large:
		return writeAt(k.fd, sealed, int64(1-k.place)*keyPlace)
	default:
		return d.replace(k.path, sealed)
	}
}

// replace makes a file with that content in the place of another. It does not last through a reboot, and neither need it.
func (d *directory) replace(path string, content []byte) error {
	temporary := d.keys + replaceName
	if err := removeFile(temporary); err != nil {
		return err
	}
	fd, err := d.create(temporary, syscall.O_WRONLY)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	if err := writeAt(fd, content, 0); err != nil {
		removeFile(temporary)
		return err
	}
	return renameFile(temporary, path)
}

func (k *keyFile) close() {
	if k.fd >= 0 {
		closeFile(k.fd)
		k.fd = -1
	}
}
