package redsync

// Sites returns how many Lockers there are.
func (r *Redsync) Sites() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sites)
}
