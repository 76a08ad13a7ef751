package protocol

// MaxQueued is for tests.
const MaxQueued = maxQueued

// Kept is how much a Transport made by Shared remembers of requests.
func Kept(t Transport) int {
	s := t.(*shared)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued + len(s.last) + len(s.releases)
}
