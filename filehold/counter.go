//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// Tokens rise for the whole directory, and never go back. They come from two words of memory that
// all processes share, in the file fence/counter: the next token to be granted, and the ceiling
// that is known to be durable. Both only rise, each by one atomic instruction, so a process that is
// stopped or killed at any point blocks nobody.
//
// The words mean nothing after a reboot, so the file says in which boot it was made. A process that
// does not find its own boot there, or cannot tell boots apart, puts a new file in its place. That
// is safe at any time:
//
//   - A token counts only if the counter still had its name after the draw. It is not above the
//     ceiling that was durable then, so the directory fence/ said as much.
//   - A new counter begins empty. A process that finds it so reads the ceiling, after the old
//     counter has lost its name, and lets the new one begin above that: above all tokens that
//     count.
//   - A process that has the old counter finds after its next draw that it has lost its name, and
//     draws again from the new one.
//
// So anybody may remove the counter, move it or give it another link. An older file in its place,
// or an emptied one, counts from a smaller number. A process refuses to draw below its own last
// token, and from an emptied counter. It cannot know more than that.

const (
	counterName  = "counter"
	counterMagic = "holdfst1"

	// counterSize is written in full at once: a full disk could not fill a hole later.
	counterSize = 4096
)

// Where things are in the file.
const (
	counterBoot    = 8
	counterNext    = 24
	counterDurable = 32
)

// counter is the mapped file. It is safe for concurrent use.
type counter struct {
	file   fileID
	boot   bootMark // of the boot in which it was made
	memory []byte
}

var errReplaced = errors.New("replaced")

// errCounter is the error of a counter that somebody has changed.
func errCounter(what string) error {
	return fmt.Errorf("file \"fence/%s\" %s; remove it: %w", counterName, what, errDamaged)
}

// openCounter returns the counter in force. If it finds none of this boot, it makes one. If trusts
// is true, it takes any counter as one of this boot.
func (d *directory) openCounter(temporary string, trusts bool) (c *counter, err error) {
	for range 100 {
		c, err = d.mapCounter()
		if err == nil && (trusts || d.boot != (bootMark{}) && c.boot == d.boot) {
			return c, d.begin(c)
		}
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) && !trusts
		if err != nil && !missing {
			break
		}
		if err = d.makeCounter(temporary); err != nil {
			break
		}
		trusts = true
	}
	return nil, err
}

func (d *directory) makeCounter(temporary string) error {
	content := make([]byte, counterSize)
	copy(content, counterMagic)
	copy(content[counterBoot:], d.boot[:])
	if err := d.makeFile(temporary, content, false); err != nil {
		return err
	}
	return renameFile(temporary, d.fence+counterName)
}

func (d *directory) mapCounter() (*counter, error) {
	path := d.fence + counterName
	fd, err := openFile(path, syscall.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer closeFile(fd)
	c := new(counter)
	// The file may be cut short at any time. Then a look into the memory would fault, but a read
	// does not.
	var head [counterNext]byte
	n, err := readAt(fd, head[:], 0)
	st, errStat := statOpen(fd)
	c.file, c.boot = idOf(&st), bootMark(head[counterBoot:])
	switch {
	case err != nil:
	case errStat != nil:
		err = errStat
	case n < len(head) || st.Size < counterSize || string(head[:len(counterMagic)]) != counterMagic:
		err = fmt.Errorf("%s: %w", path, errDamaged)
	default:
		c.memory, err = sysMmap(fd, 0, counterSize,
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(c, func(c *counter) { syscall.Munmap(c.memory) })
	return c, nil
}

func (c *counter) word(offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&c.memory[offset]))
}

// begin sets an empty counter above all tokens that were granted.
func (d *directory) begin(c *counter) error {
	return c.guard(func() error {
		if c.word(counterNext).Load() > 0 {
			return nil
		}
		ceiling, err := d.ceiling()
		if err == nil {
			err = syncDir(d.fence)
		}
		if err != nil {
			return err
		}
		raise(c.word(counterDurable), ceiling)
		raise(c.word(counterNext), ceiling+1)
		return nil
	})
}

// raise makes the word at least value.
func raise(word *atomic.Uint64, value uint64) {
	for {
		old := word.Load()
		if old >= value || word.CompareAndSwap(old, value) {
			return
		}
	}
}

// guard turns a memory fault into an error. Such a fault means that somebody has cut the file
// short.
func (c *counter) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if begin := uintptr(unsafe.Pointer(&c.memory[0])); !ok ||
				fault.Addr()-begin >= counterSize {
				panic(r)
			}
			err = errCounter("was cut short, or the disk is full")
		}
		runtime.KeepAlive(c)
	}()
	return f()
}

// draw takes a block of tokens whose first is not below the proposed one. seen is the last token
// the last token that was drawn before, or 0. draw fails with errReplaced if the counter is not in
// force any more.
func (d *directory) draw(c *counter, seen, proposed, block uint64) (first uint64, err error) {
	err = c.guard(func() error {
		for {
			next := c.word(counterNext).Load()
			if next <= seen {
				return d.fail("%w", errCounter("was emptied, or replaced by an older one, and "+
					"counts below tokens that were granted"))
			}
			first = max(next, proposed)
			if first > maxToken || block > maxToken-first+1 {
				return d.fail("token %d and the %d after it would not be below 2^53", first,
					block-1)
			}
			if last := first + block - 1; last > c.word(counterDurable).Load() {
				if err := d.allow(c, last); err != nil {
					return err
				}
				continue
			}
			if c.word(counterNext).CompareAndSwap(next, first+block) {
				return nil
			}
		}
	})
	if err != nil && !errors.Is(err, errDamaged) {
		return 0, err
	}
	switch named, errNamed := isNamed(d.fence+counterName, c.file); {
	case errNamed != nil:
		err = errNamed
	case !named:
		err = errReplaced
	}
	return first, err
}

// topUp raises a low ceiling, so that no grant has to wait for the disk.
func (d *directory) topUp(c *counter) error {
	return c.guard(func() error {
		now, next, durable := clock.Microseconds(), c.word(counterNext).Load(),
			c.word(counterDurable).Load()
		if durable == maxToken || durable >= next+ceilingSlack/2 && durable >= now+ceilingStep/2 {
			return nil
		}
		return d.allow(c, min(maxToken, max(next, now)))
	})
}

// allow raises the ceiling to need at least.
func (d *directory) allow(c *counter, need uint64) error {
	ceiling, err := d.raiseCeiling(need)
	if err == nil {
		raise(c.word(counterDurable), ceiling)
	}
	return err
}

// tokens are what one member draws. They are not safe for concurrent use.
type tokens struct {
	dir       *directory
	temporary string // a name to make a counter under
	counter   *counter
	last      uint64 // that was drawn
}

// draw takes tokens from the counter in force.
func (t *tokens) draw(proposed, block uint64) (first uint64, err error) {
	for range 100 {
		if first, err = t.dir.draw(t.counter, t.last, proposed, block); err == nil {
			t.last = first + block - 1
		}
		if !errors.Is(err, errReplaced) {
			break
		}
		c, err := t.dir.openCounter(t.temporary, true)
		if err != nil {
			return 0, err
		}
		t.counter = c
	}
	return first, err
}
