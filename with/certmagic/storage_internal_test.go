package withcertmagic

import (
	"testing"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// What is not locked any more takes no memory: a server has certificates for ever new names.
func TestNothingStays(t *testing.T) {
	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	s, err := New(locker, &certmagic.FileStorage{Path: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lock(t.Context(), "issue"); err != nil {
		t.Fatal(err)
	}
	if len(s.held) != 1 {
		t.Errorf("%d names after Lock, want 1", len(s.held))
	}
	if err := s.Unlock(t.Context(), "issue"); err != nil {
		t.Fatal(err)
	}
	if len(s.held) != 0 {
		t.Errorf("%d names after Unlock, want none", len(s.held))
	}
}
