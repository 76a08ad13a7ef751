package redismodel

import "time"

// wall is a server's clock. It follows package time at a rate of its own, from a reading that can
// be set.
type wall struct {
	at      time.Time // when it was set
	reading time.Time // what it showed then
	rate    float64
}

func (w *wall) now() time.Time {
	elapsed := time.Since(w.at)
	if w.rate != 1 {
		elapsed = time.Duration(float64(elapsed) * w.rate)
	}
	return w.reading.Add(elapsed)
}

func (w *wall) set(reading time.Time, rate float64) {
	*w = wall{at: time.Now(), reading: reading, rate: rate}
}

// Time returns what the server's clock shows.
func (s *Server) Time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wall.now()
}

// StepClock sets the server's clock forward by d, or back. Leases and presences that run on it end
// earlier or later for that, and so does the uptime that it tells.
func (s *Server) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wall.set(s.wall.now().Add(d), s.wall.rate)
}

// SetRate makes the server's clock run at rate from now on: 1.01 is a hundredth too fast.
func (s *Server) SetRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wall.set(s.wall.now(), rate)
}
