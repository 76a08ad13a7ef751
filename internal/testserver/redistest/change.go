//go:build unix

package redistest

// Change makes the next Run start the server with these options besides those it had. Of a setting
// that is given twice the last one counts.
func (s *Server) Change(options ...Option) {
	for _, option := range options {
		option(s)
	}
}
