package redismodel

import (
	"cmp"
	"maps"
	"slices"
)

// types of values, as TYPE tells them.
const (
	stringType = "string"
	hashType   = "hash"
	zsetType   = "zset"
)

// value is what a key has.
type value struct {
	kind    string
	text    string   // of a string
	hash    []field  // in order of their creation
	zset    []member // in order
	expires int64    // in ms of the server's clock; 0 for never
}

type field struct{ name, text string }

type member struct {
	score float64
	name  string
}

func compareMembers(a, b member) int {
	if c := cmp.Compare(a.score, b.score); c != 0 {
		return c
	}
	return cmp.Compare(a.name, b.name)
}

func (v *value) clone() *value {
	c := *v
	c.hash = slices.Clone(v.hash)
	c.zset = slices.Clone(v.zset)
	return &c
}

// empty reports whether the key goes away: no hash or sorted set is empty.
func (v *value) empty() bool {
	return v.kind == hashType && len(v.hash) == 0 || v.kind == zsetType && len(v.zset) == 0
}

// find returns the index of a member, or -1.
func (v *value) find(name string) int {
	for i := range v.zset {
		if v.zset[i].name == name {
			return i
		}
	}
	return -1
}

// insert puts a member that is not there where it belongs.
func (v *value) insert(m member) {
	i, _ := slices.BinarySearchFunc(v.zset, m, compareMembers)
	v.zset = slices.Insert(v.zset, i, m)
}

// findField returns the index of a field, or -1.
func (v *value) findField(name string) int {
	return slices.IndexFunc(v.hash, func(f field) bool { return f.name == name })
}

// Snapshot is a server's data at a moment, to start it on later. It does not change.
type Snapshot struct {
	data map[string]*value
}

// Snapshot returns the server's data as they are now, as a file on disk would keep them.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{data: cloneData(s.data)}
}

func cloneData(data map[string]*value) map[string]*value {
	c := make(map[string]*value, len(data))
	for key, v := range data {
		c[key] = v.clone()
	}
	return c
}

// get returns the value of a key, or nil if there is none or it has expired.
func (s *Server) get(key string) *value {
	v := s.data[key]
	if v == nil || v.expires == 0 || s.now.UnixMilli() <= v.expires {
		return v
	}
	delete(s.data, key)
	return nil
}

// liveKeys returns all keys that have not expired, in order.
func (s *Server) liveKeys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.data)), func(key string) bool {
		return s.get(key) == nil
	})
}
