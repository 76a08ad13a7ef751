//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fenceModel has simulated processes draw tokens from one directory in a random order. At any
// moment of that, some put a new counter in place of the one in force, and now and then the machine
// loses its memory. It checks:
//
//   - each token is larger than every one that was granted before it was asked for, whoever drew
//     it, whatever happened in between;
//   - after every step, the disk alone is enough to go on above all tokens granted.
type fenceModel struct {
	t         *testing.T
	random    *rand.Rand
	d         *directory
	disk      []string // the names in the fence that are durable
	highest   uint64
	boots     byte
	old       []byte     // what was once in the file of the counter
	processes []*counter // of each process, the counter that it has open
	losses    int

	interferes bool // another process acts
}

func TestTokensNeverGoBack(t *testing.T) {
	t.Cleanup(func() { renames.Store(nil) })
	for round := range 20 {
		seed := rand.Uint64()
		m := &fenceModel{t: t, random: rand.New(rand.NewPCG(seed, 0))}
		m.d = &directory{fence: t.TempDir() + "/", fileMode: 0o600}
		replaceFsync(t, m.fsync)
		rename := m.rename
		renames.Store(&rename)
		m.check(m.d.makeFence())
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
	}
}

func (m *fenceModel) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
	}
}

func (m *fenceModel) ceilings() []string {
	names, err := namesIn(m.d.fence)
	m.check(err)
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := strconv.Atoi(name)
		return err != nil
	})
}

// fsync puts the names on the disk. Another process acts before or after that.
func (m *fenceModel) fsync(int) error {
	m.interfere()
	m.disk = m.ceilings()
	m.interfere()
	return nil
}

func (m *fenceModel) rename(from, to string) error {
	if !strings.HasPrefix(to, m.d.fence) { // of a Backend whose lease outlived its test
		return syscall.Rename(from, to)
	}
	m.interfere()
	err := syscall.Rename(from, to)
	m.interfere()
	return err
}

// interfere makes another process act in the middle of what one does.
func (m *fenceModel) interfere() {
	if m.interferes || m.random.IntN(3) > 0 {
		return
	}
	m.interferes = true
	defer func() { m.interferes = false }()
	switch m.random.IntN(4) {
	case 0:
		m.replace()
	case 1:
		_, err := m.d.raiseCeiling(min(maxToken, m.need()))
		m.check(err)
	default:
		if len(m.processes) > 0 {
			m.draw()
		}
	}
}

// boot starts processes, as after a boot.
func (m *fenceModel) boot() {
	m.processes = nil
	m.boots++
	m.d.boot = bootMark{m.boots}
	m.disk = m.ceilings()
	for range 3 {
		m.start()
	}
}

// start makes a process open the counter.
func (m *fenceModel) start() {
	c, err := m.d.openCounter(m.temporary(), false)
	m.check(err)
	m.processes = append(m.processes, c)
}

func (m *fenceModel) temporary() string {
	return m.d.fence + strconv.FormatUint(m.random.Uint64(), 16) + makingSuffix
}

// replace puts another counter in place of the one in force.
func (m *fenceModel) replace() { m.check(m.d.makeCounter(m.temporary())) }

func (m *fenceModel) step() {
	if len(m.processes) == 0 {
		m.start()
	}
	switch n := m.random.IntN(100); {
	case n < 70:
		m.draw()
	case n < 80:
		_, err := m.d.raiseCeiling(min(maxToken, m.need()))
		m.check(err)
	case n < 88:
		m.replace()
	case n < 90:
		m.check(removeFile(m.d.fence + counterName))
	case n < 92:
		// A process that cannot tell boots apart comes.
		boot := m.d.boot
		m.d.boot = bootMark{}
		m.start()
		m.d.boot = boot
	case n < 94:
		m.start()
	case n < 96:
		m.old, _ = os.ReadFile(m.d.fence + counterName)
	default:
		m.loseMemory()
	}
}

func (m *fenceModel) need() uint64 {
	switch m.random.IntN(3) {
	case 0:
		return m.highest + m.random.Uint64N(1<<20)
	case 1:
		return (m.highest>>30 + 1) << 30 // as others may ask for at the same time
	default:
		return m.highest + m.random.Uint64N(1<<34)
	}
}

// draw is tokens.draw in one process or another.
func (m *fenceModel) draw() {
	before := m.highest
	proposed := m.need()
	if m.random.IntN(2) == 0 {
		proposed = m.random.Uint64N(m.highest + 1)
	}
	block := 1 + m.random.Uint64N(100)
	c := &tokens{dir: m.d, temporary: m.temporary()}
	i := m.random.IntN(len(m.processes))
	c.counter = m.processes[i]
	// not to be used by another in the middle of this
	m.processes = slices.Delete(m.processes, i, i+1)
	defer func() { m.processes = append(m.processes, c.counter) }()
	token, err := c.draw(proposed, block)
	m.check(err)
	if err != nil {
		return
	}
	if token <= before || token < proposed {
		m.t.Errorf("token %d after %d, proposed %d", token, before, proposed)
	}
	m.highest = max(m.highest, token+block-1)
	m.recoverable()
}

// recoverable checks that what is durable now bounds every token granted.
func (m *fenceModel) recoverable() {
	for _, name := range m.disk {
		if value, _ := strconv.ParseUint(name, 10, 64); value >= m.highest {
			return
		}
	}
	m.t.Errorf("durable ceilings %v, and token %d is granted", m.disk, m.highest)
}

// loseMemory restarts the machine with what is on the disk, or with what was on its way there: a
// name was changed or was not.
func (m *fenceModel) loseMemory() {
	m.losses++
	if m.random.IntN(2) == 0 {
		for _, name := range m.ceilings() {
			m.check(removeFile(m.d.fence + name))
		}
		for _, name := range m.disk {
			m.check(os.WriteFile(m.d.fence+name, nil, 0o600))
		}
	}
	switch m.random.IntN(3) {
	case 0:
		m.check(removeFile(m.d.fence + counterName))
	case 1:
		// Never synced, so whatever of it reached the disk.
		m.check(removeFile(m.d.fence + counterName))
		m.check(os.WriteFile(m.d.fence+counterName, m.old, 0o600))
	}
	m.boot()
}

// TestFirstCeilingOfTwo: a process makes the first ceiling when another has just made and raised
// it. One is left: if the bound is lost, no process may find the first ceiling and go on from
// there.
func TestFirstCeilingOfTwo(t *testing.T) {
	d := &directory{fence: t.TempDir() + "/", fileMode: 0o600}
	var raised uint64
	other := func(path string) {
		if path != d.fence+"0" || raised > 0 {
			return
		}
		raised = 1 // not again, for what the other one makes
		err := d.makeFence()
		if err == nil {
			raised, err = d.raiseCeiling(5)
		}
		if err != nil {
			t.Error(err)
		}
	}
	creates.Store(&other)
	t.Cleanup(func() { creates.Store(nil) })
	if err := d.makeFence(); err != nil {
		t.Fatal(err)
	}
	if ceiling, err := d.ceiling(); err != nil || raised <= 1 || ceiling != raised {
		t.Errorf("ceiling %d, %v; want %d", ceiling, err, raised)
	}
	if err := os.Remove(d.fence + strconv.FormatUint(raised, 10)); err != nil {
		t.Fatal(err)
	}
	if ceiling, err := d.ceiling(); !errors.Is(err, errFenceGone) {
		t.Errorf("ceiling %d, %v after the bound was lost; want %v", ceiling, err, errFenceGone)
	}
}

// TestTokensAreUniqueAtOnce has many draw at the same time, while the counter is replaced over and
// over. The tokens of each rise, and none is drawn twice.
func TestTokensAreUniqueAtOnce(t *testing.T) {
	d := &directory{fence: t.TempDir() + "/", fileMode: 0o600, boot: bootMark{1}}
	if err := d.makeFence(); err != nil {
		t.Fatal(err)
	}
	const drawers, draws = 8, 2000
	drawn := make([][]uint64, drawers)
	var done sync.WaitGroup
	for i := range drawers {
		c := &tokens{dir: d, temporary: d.fence + strconv.Itoa(i) + "x"}
		var err error
		if c.counter, err = d.openCounter(c.temporary, false); err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for n := range draws {
				if i == 0 && n%20 == 0 {
					if err := d.makeCounter(c.temporary); err != nil {
						t.Error(err)
					}
				}
				token, err := c.draw(0, 2)
				if err != nil {
					t.Error(err)
					return
				}
				drawn[i] = append(drawn[i], token)
			}
		})
	}
	done.Wait()
	seen := make(map[uint64]bool)
	for i, drawn := range drawn {
		if !slices.IsSorted(drawn) {
			t.Errorf("the tokens of %d go back", i)
		}
		for _, token := range drawn {
			if seen[token] || seen[token+1] {
				t.Fatalf("token %d was drawn twice", token)
			}
			seen[token], seen[token+1] = true, true
		}
	}
}

// TestCounterCutShort cuts the file of the counter short while it is in use. That is an error, and
// not the end of the process.
func TestCounterCutShort(t *testing.T) {
	d := &directory{fence: t.TempDir() + "/", fileMode: 0o600, boot: bootMark{1}}
	if err := d.makeFence(); err != nil {
		t.Fatal(err)
	}
	c, err := d.openCounter(d.fence+"x.tmp", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.fence+counterName, 0); err != nil {
		t.Fatal(err)
	}
	if token, err := d.draw(c, 0, 0, 1); err == nil {
		t.Errorf("drew %d", token)
	}
	// As the error says.
	if err := os.Remove(d.fence + counterName); err != nil {
		t.Fatal(err)
	}
	if token, err := d.draw(c, 0, 0, 1); !errors.Is(err, errReplaced) {
		t.Errorf("drew %d, %v; want %v", token, err, errReplaced)
	}
}
