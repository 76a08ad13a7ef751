//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// A member of the directory is an open Backend. It has a named pipe members/<id>, which it keeps
// open for reading. The kernel closes the pipe when the last process that has it open has ended.
// Another member that can open it for writing knows that this one lives; it writes messages into
// the pipe, and the system tells it when nobody has the pipe open for reading any more.
//
// A member opens its pipe before it gives it its name, and nobody opens it for reading again. So a
// closed pipe says for good that its member is dead, and without a pipe there is no member. The
// pipe of a dead member says that there may be keys to free (see sweep).

// Suffixes of files in the making. They differ for this reason: a sweep that has found no member
// with the name of a pipe may remove the file only after its owner has become a member, and makes
// other files.
const (
	joiningSuffix = ".tmp" // of the pipe of a process that is no member yet
	makingSuffix  = ".new" // of the files that a member makes, one after the other
)

// memberID names an open Backend. It begins with the mark of its clock; the rest is random, and
// never used again.
type memberID [16]byte

func newMemberID(mark clockMark) (id memberID) {
	rand.Read(id[copy(id[:], mark[:]):])
	return id
}

func (id memberID) String() string { return hex.EncodeToString(id[:]) }

// clock returns the mark of the clock by which the member's leases are counted.
func (id memberID) clock() clockMark { return clockMark(id[:]) }

// member is our own membership.
type member struct {
	id    memberID
	path  string
	file  fileID
	alive *os.File // both ends, for children: a pipe with a writer never ends
	wake  *os.File // for messages; opened apart, because package exec makes alive block
}

// join makes a member.
func (d *directory) join() (m *member, err error) {
	for range 100 {
		m = &member{id: newMemberID(d.clock)}
		m.path = d.members + m.id.String()
		if err = d.enroll(m); err == nil {
			return m, nil
		}
		removeFile(m.path + joiningSuffix)
		d.leave(m)
		// A sweep may take a pipe that is not open yet for waste, and remove it.
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, d.wrap(err)
}

func (d *directory) enroll(m *member) error {
	pipe := m.path + joiningSuffix
	if err := d.makePipe(pipe); err != nil {
		return fmt.Errorf("no named pipe can be made: %w", err)
	}
	fd, err := openFile(pipe, syscall.O_RDWR, 0)
	if err != nil {
		return err
	}
	m.alive = os.NewFile(uintptr(fd), m.path)
	if fd, err = openFile(pipe, syscall.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return err
	}
	m.wake = os.NewFile(uintptr(fd), m.path)
	st, err := statOpen(fd)
	if err != nil {
		return err
	}
	m.file = idOf(&st)
	return renameFile(pipe, m.path)
}

// temporary is a name for files in the making.
func (m *member) temporary() string { return m.path + makingSuffix }

// remove removes the member's files. If they stay, others find them, and then free the keys.
func (m *member) remove() {
	removeFile(m.temporary())
	removeFile(m.path)
}

// leave ends the membership.
func (d *directory) leave(m *member) {
	// A child that has inherited the pipe keeps it open. So a closed pipe takes its place.
	if m.inPlace() == nil && d.makePipe(m.temporary()) == nil {
		renameFile(m.temporary(), m.path)
	}
	if m.alive != nil {
		m.alive.Close()
	}
	if m.wake != nil {
		m.wake.Close()
	}
}

// stay ends the membership at until. Before that the holder of a lock relies on its lease, and does
// not know that the Backend was closed.
func (d *directory) stay(m *member, until time.Duration) {
	if rest := until - clock.SinceBoot(); rest > 0 {
		// The timer's clock is not that of leases, so stay looks again.
		time.AfterFunc(rest, func() { d.stay(m, until) })
		return
	}
	d.leave(m)
}

var errGone = errors.New(
	"the directory, or what belongs into it, was removed or replaced since it was opened; " +
		"open it again")

// inPlace checks that a process that opens the directory now comes to the same files as we do.
// Otherwise others may hold keys that we think are ours.
func (m *member) inPlace() error {
	named, err := isNamed(m.path, m.file)
	if err == nil && !named {
		return errGone
	}
	return err
}

// living reports whether a member lives. If it cannot tell, it reports true: then only the lease
// bounds the claim. left reports that a dead member has left its pipe.
func (d *directory) living(id memberID) (lives, left bool) {
	fd, err := openFile(d.members+id.String(), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	switch {
	case err == nil:
		closeFile(fd)
		return true, false
	case errors.Is(err, syscall.ENXIO):
		// A pipe says nothing about processes of another machine.
		dead := id.clock() == d.clock || oneKernelSource(d.path)
		return !dead, dead
	default:
		return !errors.Is(err, fs.ErrNotExist), false
	}
}

// roll returns the members that have files: living ones, dead ones, and those that are about to
// join.
func (d *directory) roll() (members []memberID, err error) {
	names, err := namesIn(d.members)
	for _, name := range names {
		if id, ok := parseMember(name); ok && !slices.Contains(members, id) {
			members = append(members, id)
		}
	}
	return members, err
}

func parseMember(name string) (id memberID, ok bool) {
	digits := strings.TrimSuffix(name, joiningSuffix)
	n, err := hex.Decode(id[:], []byte(digits[:min(len(digits), 2*len(id))]))
	return id, err == nil && n == len(id) && id.String() == digits
}

// alone reports whether no other member lives. Then no other process has a claim on anything.
func (d *directory) alone(me memberID) bool {
	members, err := d.roll()
	return err == nil && !slices.ContainsFunc(members, func(id memberID) bool {
		lives, _ := d.living(id)
		return lives && id != me
	})
}

// checkClock fails if a living member counts its leases by another clock.
func (d *directory) checkClock(me memberID) error {
	members, err := d.roll()
	if err != nil {
		return d.wrap(err)
	}
	for _, id := range members {
		if id.clock() == me.clock() {
			continue
		}
		if lives, _ := d.living(id); lives {
			return d.otherClock(id)
		}
	}
	return nil
}

// otherClock is the error of a directory that a member with another clock uses.
func (d *directory) otherClock(id memberID) error {
	clock := "another clock (time namespace), or on another machine"
	if d.clock == (clockMark{}) || id.clock() == (clockMark{}) {
		who := "a process that uses it"
		if d.clock == (clockMark{}) {
			who = "this process"
		}
		clock = fmt.Sprintf("a clock that may be another: %s cannot read /proc/self/ns/time (no /proc)",
			who)
	}
	return d.fail("is in use by processes with %s: leases there and here cannot be compared; "+
		"if none of them lives, remove %s%v", clock, d.members, id)
}
