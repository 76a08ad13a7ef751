//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// Tokens rise for the whole directory, and never go back. Two files see to it.
//
// The file "fence" holds two ceilings, each in a place of its own, far enough apart that writing one cannot harm the
// other. The file "mutex" holds the counter: the next token to be granted, and the durable ceiling. A
// token is granted only if it is not above the durable ceiling, and before it is granted, the counter is set
// above it. The counter is never synced; the ceiling is raised in large steps, so few grants wait for the disk.
//
// Why tokens never go back, where each step marked * is made under the mutex:
//
//   - Raising writes a new ceiling, larger than both, to the place that does not hold the durable one *; syncs the file; and then
//     sets "durable" in the counter to it, if it is still what that place holds *. So when "durable" is c, c was
//     written and then synced, and its place has not been written to since: whoever would write there first has to
//     find another durable ceiling in the other place. Hence (1): a durable ceiling is on the disk, whole, as
//     long as "durable" is not raised beyond it.
//   - A process is killed: what it has written to a file stays readable. A grant has moved the counter before
//     it returned, so the next grant gets a larger token. A write of the counter that was cut short is told by its checksum, and
//     makes it void. A ceiling that was written but not yet synced does not count, as "durable" does not say so.
//   - The machine loses its memory: the counter is void, since it bears the mark of an earlier boot (or, where boots
//     cannot be told apart, since no member is alive). By (1) the larger ceiling found on the disk is at least the last
//     durable one, and so at least every token that was granted.
//   - A void counter starts anew above the larger ceiling, which is at least every token that was granted, as just said. The file is
//     synced first: if the counter is void for another reason than a boot, not all of it need be on the disk.

const (
	// fencePlace is the distance of the places for ceilings: no smaller than a page or a block anywhere.
	fencePlace = 65536

	// ceilingStep is how far beyond the clock the ceiling is raised, in microseconds.
	ceilingStep = 10 * 60 * 1e6

	// ceilingSlack is how far beyond a token it is raised at least.
	ceilingSlack = 16 << 20

	// maxToken keeps tokens exact in JSON.
	maxToken = 1<<53 - 1
)

// bootMark tells boots apart.
type bootMark [16]byte

// bootMarkSource is replaced by tests, which cannot reboot.
var bootMarkSource = readBootMark

// ceilingError says that no token was drawn, as the ceiling has to be raised to this one first.
type ceilingError uint64

func (e ceilingError) Error() string { return fmt.Sprintf("token %d is above the ceiling", uint64(e)) }

// counter is what the mutex file holds.
type counter struct {
	boot    bootMark
	next    uint64 // smaller than any token that is still to be granted, or equal
	durable uint64 // the durable ceiling
}

const counterSize = len(bootMark{}) + 16

func (c *counter) seal() []byte {
	payload := append(make([]byte, 0, counterSize), c.boot[:]...)
	payload = binary.LittleEndian.AppendUint64(payload, c.next)
	payload = binary.LittleEndian.AppendUint64(payload, c.durable)
	return seal(make([]byte, 0, sealSize+counterSize), 0, payload)
}

// decodeCounter reads what seal wrote. It reports whether that is whole.
func decodeCounter(b []byte) (c counter, whole bool) {
	_, payload, _, err := unseal(b)
	if err != nil || len(payload) != counterSize {
		return c, false
	}
	copy(c.boot[:], payload)
	c.next = binary.LittleEndian.Uint64(payload[len(c.boot):])
	c.durable = binary.LittleEndian.Uint64(payload[len(c.boot)+8:])
	return c, true
}

func (d *directory) writeCounter(c *counter) error { return writeAt(d.mutex.fd, c.seal(), 0) }

// peekCounter returns the counter, void or not, or reports that it is not whole.
func (d *directory) peekCounter() (c counter, whole bool, err error) {
	var buf [sealSize + counterSize]byte
	n, err := readAt(d.mutex.fd, buf[:], 0)
	c, whole = decodeCounter(buf[:n])
	return c, whole, err
}

// readCounter returns the counter. If it is void, it starts anew above everything that may have been granted.
// The mutex is held.
func (d *directory) readCounter() (counter, error) {
	c, whole, err := d.peekCounter()
	if err == nil && (!whole || c.boot != d.boot) {
		err = d.restartCounter(&c)
	}
	return c, err
}

func (d *directory) restartCounter(c *counter) error {
	if err := syncFile(d.fence); err != nil {
		return err
	}
	ceilings, err := d.readCeilings()
	if err != nil {
		return err
	}
	c.boot = d.boot
	c.durable = max(ceilings[0].value, ceilings[1].value)
	c.next = c.durable + 1
	return d.writeCounter(c)
}

// ceiling is what one place of the fence holds.
type ceiling struct {
	value uint64
	whole bool
}

var errFenceDamaged = errors.New("file \"fence\" is damaged, so tokens could go back: put it back, or remove the whole directory to begin anew")

// decodeCeiling reads one place of the fence.
func decodeCeiling(b []byte) ceiling {
	value, payload, _, err := unseal(b)
	if err != nil || len(payload) != 0 || value > maxToken {
		return ceiling{}
	}
	return ceiling{value, true}
}

// readCeilings fails with errFenceDamaged if neither is whole.
func (d *directory) readCeilings() (c [2]ceiling, err error) {
	var buf [sealSize]byte
	for i := range c {
		n, err := readAt(d.fence, buf[:], int64(i)*fencePlace)
		if err != nil {
			return c, err
		}
		c[i] = decodeCeiling(buf[:n])
	}
	if !c[0].whole && !c[1].whole {
		return c, errFenceDamaged
	}
	return c, nil
}

// makeFence makes the fence durable before anything else is, unless there is one: a process may have died
// between this and the marker.
func (d *directory) makeFence() error {
	if _, err := os.Lstat(d.path + "/" + fenceName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content := make([]byte, fencePlace+sealSize)
	zero := seal(nil, 0, nil)
	copy(content, zero)
	copy(content[fencePlace:], zero)
	return d.install(fenceName, content)
}

// lowCeiling returns to what the ceiling should be raised, so that no grant has to wait for that later; 0 if it is high
// enough. The mutex is held.
func (d *directory) lowCeiling() (need uint64, err error) {
	c, err := d.readCounter()
	if err != nil {
		return 0, err
	}
	now := clock.Microseconds()
	if c.durable >= maxToken || c.durable >= c.next+ceilingSlack/2 && c.durable >= now+ceilingStep/2 {
		return 0, nil
	}
	return min(maxToken, max(c.next, now)), nil
}

// raise is a ceiling that is being raised.
type raise struct {
	place int
	value uint64
}

// beginRaise writes a ceiling of at least need. Then syncFile(d.fence), without the mutex. The mutex is held.
func (d *directory) beginRaise(need uint64) (raise, error) {
	c, err := d.readCounter()
	if err != nil {
		return raise{}, err
	}
	ceilings, err := d.readCeilings()
	if err != nil {
		return raise{}, err
	}
	r := raise{place: -1}
	for i := range ceilings {
		if ceilings[i].whole && ceilings[i].value == c.durable {
			r.place = 1 - i
			break
		}
	}
	if r.place < 0 {
		return raise{}, errFenceDamaged
	}
	// Larger than the other one, too: no value is written twice, so a slower process that finds its value in
	// its place knows that it was not overwritten in the meantime. At the very end of all tokens it may be equal, and is then the same.
	r.value = min(maxToken, max(need+ceilingSlack, clock.Microseconds()+ceilingStep, ceilings[0].value+1, ceilings[1].value+1))
	return r, writeAt(d.fence, seal(nil, r.value, nil), int64(r.place)*fencePlace)
}

// endRaise puts the synced ceiling into force, unless another process has overwritten it. The mutex is held.
func (d *directory) endRaise(r raise) error {
	c, err := d.readCounter()
	if err != nil {
		return err
	}
	ceilings, err := d.readCeilings()
	if err != nil {
		return err
	}
	if got := ceilings[r.place]; !got.whole || got.value != r.value || c.durable >= r.value {
		return nil
	}
	c.durable = r.value
	return d.writeCounter(&c)
}
