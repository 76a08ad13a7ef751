package protocol

// remembered is how many keys recent knows at least, and half of how many it knows at most.
const remembered = 4096

// recent knows the last keys of a scan. When a server makes its table of keys smaller, it returns
// some keys again, of those that it returned last.
type recent struct{ young, old map[string]bool }

// add adds a key, and reports whether it was not among the last ones.
func (r *recent) add(key string) bool {
	if r.young[key] || r.old[key] {
		return false
	}
	if r.young == nil || len(r.young) == remembered {
		r.old, r.young = r.young, make(map[string]bool)
	}
	r.young[key] = true
	return true
}
