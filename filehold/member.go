//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// A member of the directory is an open Backend. It has a file members/<id> that it keeps locked: the kernel ends
// the lock when the last process that has the file open has ended. Beside it are two named pipes: into <id>.wake others write
// messages, and <id>.alive the member keeps open for writing, so that others are told when it dies.
//
// A member's file is never locked again once it is unlocked. So whoever finds it unlocked, under the mutex, knows for good
// that the member is dead, and renames it to <id>.dead, which is a note that there may be keys to free; see sweep.

const (
	wakeSuffix  = ".wake"
	aliveSuffix = ".alive"
	deadSuffix  = ".dead"
)

// member is our own membership.
type member struct {
	id    memberID
	path  string
	file  *os.File
	file0 fileID
	alive *os.File
	wake  *os.File // both ends
}

// join makes a member. The mutex is held.
func (d *directory) join() (*member, error) {
	m := new(member)
	rand.Read(m.id[:])
	m.path = d.members + m.id.String()
	err := d.enroll(m)
	if err != nil {
		m.remove()
		m.leave()
		return nil, d.wrap(err)
	}
	return m, nil
}

func (d *directory) enroll(m *member) error {
	for _, suffix := range []string{wakeSuffix, aliveSuffix} {
		if err := d.makePipe(m.path + suffix); err != nil {
			return fmt.Errorf("its file system has no named pipes: %w", err)
		}
	}
	// Both ends: the member shall find the pipe empty, and not ended, when nobody else has it open.
	fd, err := openFile(m.path+wakeSuffix, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	m.wake = os.NewFile(uintptr(fd), m.path+wakeSuffix)
	fd, err = openFile(m.path+aliveSuffix, syscall.O_RDWR, 0)
	if err != nil {
		return err
	}
	m.alive = os.NewFile(uintptr(fd), m.path+aliveSuffix)

	// Locked before it has its name: those who look without the mutex must not take it for dead.
	fd, err = d.create(m.path+temporarySuffix, syscall.O_RDWR)
	if err != nil {
		return err
	}
	m.file = os.NewFile(uintptr(fd), m.path)
	if err := tryFlock(fd, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("its file system has no file locks: %w", os.NewSyscallError("flock", err))
	}
	if err := writeAt(fd, fmt.Appendf(nil, "process %d\n", os.Getpid()), 0); err != nil {
		return err
	}
	if m.file0, _, err = identifyOpen(fd); err != nil {
		return err
	}
	return renameFile(m.path+temporarySuffix, m.path)
}

// remove removes the member's files. If they stay, others find them, and then free the keys.
func (m *member) remove() {
	for _, suffix := range []string{temporarySuffix, "", wakeSuffix, aliveSuffix} {
		removeFile(m.path + suffix)
	}
}

// leave ends the membership.
func (m *member) leave() {
	if m.file != nil {
		// Unlocked, and not only closed: a child may have inherited it.
		unflock(int(m.file.Fd()))
		m.file.Close()
	}
	if m.alive != nil {
		m.alive.Close()
	}
	if m.wake != nil {
		m.wake.Close()
	}
}

var errGone = errors.New("the directory, or what belongs into it, was removed or replaced since it was opened; open it again")

// inPlace checks that everybody who opens the directory now comes to the same files as we do. Otherwise
// others may hold what we think is ours. The mutex is held.
func (c *core) inPlace() error {
	if id, err := identify(c.member.path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && id != c.member.file0 {
		return errGone
	} else if err != nil {
		return err
	}
	if _, named, err := identifyOpen(c.dir.mutex.fd); err != nil {
		return err
	} else if !named {
		return errGone
	}
	return nil
}

// living reports whether a member lives. When it cannot tell, it says yes: then only the lease bounds the claim.
//
// It may be called without the mutex, but then only to show the result to people.
func (d *directory) living(id memberID) bool {
	fd, err := openFile(d.members+id.String(), syscall.O_RDONLY, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer closeFile(fd)
	// Shared, so that those who look at the same time do not find each other's lock.
	if err := tryFlock(fd, syscall.LOCK_SH); err != nil {
		return true
	}
	unflock(fd)
	return false
}

// roll is what the members directory holds.
type roll struct {
	members []memberID // that have a file, dead or alive
	dead    []memberID // that are marked as dead
	waste   []string   // names of files of members that are neither
}

func (d *directory) readRoll() (r roll, err error) {
	names, err := namesIn(d.members)
	if err != nil {
		return r, err
	}
	seen := make(map[memberID]bool)
	for _, name := range names {
		id, suffix, ok := parseMember(name)
		switch {
		case !ok:
		case suffix == "":
			r.members = append(r.members, id)
			seen[id] = true
		case suffix == deadSuffix:
			r.dead = append(r.dead, id)
			seen[id] = true
		}
	}
	for _, name := range names {
		if id, suffix, ok := parseMember(name); ok && suffix != "" && !seen[id] {
			r.waste = append(r.waste, name)
		}
	}
	return r, nil
}

func parseMember(name string) (id memberID, suffix string, ok bool) {
	const digits = 2 * len(id)
	if len(name) < digits {
		return id, "", false
	}
	name, suffix = name[:digits], name[digits:]
	if _, err := hex.Decode(id[:], []byte(name)); err != nil || strings.ToLower(name) != name {
		return id, "", false
	}
	switch suffix {
	case "", wakeSuffix, aliveSuffix, deadSuffix, temporarySuffix:
		return id, suffix, true
	}
	return id, "", false
}

// markDead notes that a member is dead. The mutex is held.
func (d *directory) markDead(id memberID) {
	path := d.members + id.String()
	renameFile(path, path+deadSuffix)
}

// bury removes the last files of a dead member. The note of its death comes last: as long as it is there, somebody will do the rest.
func (d *directory) bury(id memberID) {
	path := d.members + id.String()
	for _, suffix := range []string{wakeSuffix, aliveSuffix, deadSuffix} {
		removeFile(path + suffix)
	}
}

// clear empties the directory of keys and members if no member is alive: then nothing that it says is in force. It
// reports whether that was so. The mutex is held, and we are not a member yet.
func (d *directory) clear() (bool, error) {
	r, err := d.readRoll()
	if err != nil {
		return false, err
	}
	for _, id := range r.members {
		if d.living(id) {
			return false, nil
		}
	}
	if err := removeThose(d.keys, func(name string) bool { return isKeyName(name) || isTemporary(name) }); err != nil {
		return false, err
	}
	return true, removeThose(d.members, isMemberName)
}

func isMemberName(name string) bool {
	_, _, ok := parseMember(name)
	return ok
}

// removeThose removes the files of a directory, the path of which ends with a slash, with such names.
func removeThose(dir string, such func(name string) bool) error {
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if such(name) {
			if err := removeFile(dir + name); err != nil {
				return err
			}
		}
	}
	return nil
}
