package look

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/wholefile"
)

// memoryHead is the first line of a file of Memory.
const memoryHead = "holdfast leaks 1\n"

// mostRemembered is how many holders a Memory keeps: 24 bytes each in memory.
const mostRemembered = 1 << 20

// Memory knows when holders were first seen, from one call of a command to the next. It is for
// backends that do not keep the time since when a lock is held.
type Memory struct {
	path   string
	before map[uint64]int64 // when a holder was seen first, in milliseconds since 1970
	now    map[uint64]int64
}

// Remember reads the memory in a file, which need not exist. An empty path remembers nothing.
func Remember(path string) (*Memory, error) {
	m := &Memory{path: path, before: make(map[uint64]int64), now: make(map[uint64]int64)}
	if path == "" {
		return m, nil
	}
	if err := wholefile.Check(path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0:
		return m, nil
	case err != nil:
		return nil, err
	}
	rest, ok := bytes.CutPrefix(text, []byte(memoryHead))
	if !ok {
		return nil, fmt.Errorf("%s is another program's file: name one that is holdfast's own",
			Shown(path))
	}
	for lines := bufio.NewScanner(bytes.NewReader(rest)); lines.Scan(); {
		var id uint64
		var at int64
		if _, err := fmt.Sscanf(lines.Text(), "%x %d", &id, &at); err != nil {
			return nil, fmt.Errorf("%s is damaged: remove it", Shown(path))
		}
		m.before[id] = at
	}
	return m, nil
}

// Since returns since when the party is known to hold the key: what the backend says, or when it
// was first seen. It returns the zero time if it is first seen now.
func (m *Memory) Since(k Key, p Party, now time.Time) time.Time {
	if !p.Since.IsZero() || m.path == "" {
		return p.Since
	}
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint64(len(k.Full))) // a hash never fails
	h.Write([]byte(k.Full))
	h.Write([]byte(p.Value))
	id := binary.BigEndian.Uint64(h.Sum(nil))
	at, seen := m.before[id]
	if !seen {
		at = now.UnixMilli()
	}
	if len(m.now) < mostRemembered {
		m.now[id] = at
	}
	if !seen {
		return time.Time{}
	}
	return time.UnixMilli(at)
}

// Save writes what was seen into the file. Unless whole is set, not all locks were seen, and it
// keeps those that were in the file.
func (m *Memory) Save(whole bool) error {
	if m.path == "" {
		return nil
	}
	if !whole {
		for id, at := range m.before {
			m.now[id] = at
		}
	}
	text := bytes.NewBufferString(memoryHead)
	for id, at := range m.now {
		fmt.Fprintf(text, "%016x %d\n", id, at)
	}
	return wholefile.Write(m.path, 0o600, text.Bytes())
}
