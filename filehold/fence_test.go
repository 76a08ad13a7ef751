//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// fenceModel has simulated processes draw tokens from one directory and raise its ceiling, step by step, in a random
// order; some are killed between two steps, and the machine loses its memory now and then. What it checks:
//
//   - each token is larger than every one before, whoever drew it, whatever happened in between;
//   - after every step, the disk alone is enough to go on above all tokens granted.
type fenceModel struct {
	t       *testing.T
	random  *rand.Rand
	d       *directory
	path    string
	disk    []byte // what of the fence is durable
	highest uint64
	boots   byte
	counter []byte       // what was once in the file of the counter
	raises  []modelRaise // under way, by different processes
	losses  int
}

type modelRaise struct {
	raise
	synced bool
}

func TestTokensNeverGoBack(t *testing.T) {
	t.Cleanup(func() { sysFsync = syscall.Fsync })
	for round := range 40 {
		seed := rand.Uint64()
		m := &fenceModel{t: t, random: rand.New(rand.NewPCG(seed, 0)), path: t.TempDir()}
		m.d = &directory{path: m.path, fileMode: 0o600, dirMode: 0o700, bootKnown: true}
		m.check(m.d.makeFence())
		sysFsync = m.fsync
		m.boot()
		for step := range 400 {
			m.step()
			if t.Failed() {
				t.Fatalf("seed %d, round %d, step %d", seed, round, step)
			}
		}
		if m.losses == 0 {
			t.Fatalf("seed %d: the machine never lost its memory", seed)
		}
		m.d.close()
		sysFsync = syscall.Fsync
	}
}

// fsync puts the fence on the disk.
func (m *fenceModel) fsync(fd int) error {
	if fd == m.d.fence {
		m.disk = m.fence()
	}
	return nil
}

func (m *fenceModel) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
	}
}

// boot opens the files, as after a boot.
func (m *fenceModel) boot() {
	m.d.close()
	m.boots++
	m.d.boot = bootMark{m.boots}
	var err error
	m.d.fence, err = openFile(m.path+"/"+fenceName, os.O_RDWR, 0)
	m.check(err)
	m.d.mutex.fd, err = openFile(m.path+"/"+mutexName, os.O_RDWR|os.O_CREATE, 0o600)
	m.check(err)
	m.disk = m.fence()
	m.raises = nil
}

func (m *fenceModel) fence() []byte {
	content, err := os.ReadFile(filepath.Join(m.path, fenceName))
	m.check(err)
	return content
}

func (m *fenceModel) step() {
	switch n := m.random.IntN(100); {
	case n < 55:
		m.draw()
	case n < 70:
		m.begin(m.need())
	case n < 80:
		m.sync()
	case n < 92:
		m.end()
	case n < 95:
		// A process is killed in the middle of a write.
		m.tear(m.path+"/"+mutexName, 0)
	case n < 97:
		if len(m.raises) > 0 {
			i := m.random.IntN(len(m.raises)) // a process is killed while it raises the ceiling
			m.raises = append(m.raises[:i], m.raises[i+1:]...)
		}
	case n < 98:
		var err error
		m.counter, err = os.ReadFile(m.path + "/" + mutexName)
		m.check(err)
	default:
		m.loseMemory()
	}
}

func (m *fenceModel) need() uint64 {
	switch m.random.IntN(4) {
	case 0:
		return m.highest + m.random.Uint64N(1<<20)
	case 1:
		return (m.highest>>30 + 1) << 30 // as others may ask for at the same time
	case 2:
		return clock.Microseconds() + m.random.Uint64N(1<<30)
	default:
		return m.highest + m.random.Uint64N(1<<34)
	}
}

// draw is turn.draw in one process or another.
func (m *fenceModel) draw() {
	tr := turn{directory: m.d}
	proposed := m.need()
	if m.random.IntN(2) == 0 {
		proposed = m.random.Uint64N(m.highest + 1)
	}
	block := 1 + m.random.Uint64N(100)
	token, err := tr.draw(proposed, block)
	if need, ok := isCeiling(err); ok {
		m.begin(need)
		return
	}
	m.check(err)
	if err != nil {
		return
	}
	if token <= m.highest || token < proposed {
		m.t.Errorf("token %d after %d, proposed %d", token, m.highest, proposed)
	}
	m.highest = max(m.highest, token+block-1)
	m.recoverable()
}

// recoverable checks that what is durable now bounds every token granted.
func (m *fenceModel) recoverable() {
	high := uint64(0)
	for _, place := range [][]byte{m.disk, m.disk[fencePlace:]} {
		high = max(high, decodeCeiling(place).value)
	}
	if high < m.highest {
		m.t.Errorf("the durable ceiling is %d, and token %d is granted", high, m.highest)
	}
}

func (m *fenceModel) begin(need uint64) {
	r, err := m.d.beginRaise(min(need, maxToken))
	m.check(err)
	m.raises = append(m.raises, modelRaise{raise: r})
}

func (m *fenceModel) sync() {
	if len(m.raises) > 0 {
		m.check(syncFile(m.d.fence))
		m.raises[m.random.IntN(len(m.raises))].synced = true
	}
}

func (m *fenceModel) end() {
	for i, r := range m.raises {
		if r.synced {
			m.check(m.d.endRaise(r.raise))
			m.raises = append(m.raises[:i], m.raises[i+1:]...)
			return
		}
	}
}

// tear overwrites the beginning of a record.
func (m *fenceModel) tear(path string, offset int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	m.check(err)
	defer f.Close()
	garbage := make([]byte, m.random.IntN(40))
	for i := range garbage {
		garbage[i] = byte(m.random.Uint32())
	}
	_, err = f.WriteAt(garbage, offset)
	m.check(err)
}

// loseMemory restarts the machine with what is on the disk, and any part of what was on its way there.
func (m *fenceModel) loseMemory() {
	m.losses++
	now := m.fence()
	disk := bytes.Clone(m.disk)
	for _, offset := range []int{0, fencePlace} {
		n := m.random.IntN(sealSize + 1) // how much of the place has arrived
		if m.random.IntN(2) == 0 {
			n = []int{0, sealSize}[m.random.IntN(2)]
		}
		copy(disk[offset:offset+n], now[offset:])
	}
	m.check(os.WriteFile(m.path+"/"+fenceName, disk, 0o600))
	switch m.random.IntN(4) {
	case 0:
		m.check(os.Truncate(m.path+"/"+mutexName, 0))
	case 1:
		// Never synced, so whatever of it reached the disk.
		m.check(os.WriteFile(m.path+"/"+mutexName, m.counter, 0o600))
	case 2:
		m.tear(m.path+"/"+mutexName, 0)
	}
	m.boot()
}

func FuzzCounter(f *testing.F) {
	c := counter{boot: bootMark{1}, next: 7, durable: 9}
	f.Add(c.seal())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, whole := decodeCounter(b)
		if !whole {
			if c != (counter{}) {
				t.Errorf("%x is not whole, and is read as %+v", b, c)
			}
			return
		}
		sealed := c.seal()
		if again, whole := decodeCounter(sealed); !whole || again != c || !bytes.Equal(sealed[sealSize:], b[sealSize:len(sealed)]) {
			t.Errorf("%x is read as %+v", b, c)
		}
	})
}

func FuzzCeiling(f *testing.F) {
	f.Add(seal(nil, 12345, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c := decodeCeiling(b); c.whole && !bytes.Equal(seal(nil, c.value, nil), b[:sealSize]) {
			t.Errorf("%x is read as %+v", b, c)
		}
	})
}
