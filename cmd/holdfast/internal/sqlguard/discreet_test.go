package sqlguard

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/fence"
)

// TestDiscreet: whatever a driver or a server repeats, no login gets through, and the meaning
// stays.
func TestDiscreet(t *testing.T) {
	at := backendurl.Database{User: "bob", Password: "s/e%t"}
	for text, want := range map[string]string{
		"cannot parse bob:s/e%t@h":                   "cannot parse bob:...@h",
		"cannot parse bob:s%2Fe%25t@h":               "cannot parse bob:...@h",
		`password authentication failed for "bob"`:   `password authentication failed for "..."`,
		"Access denied for user 'bob'@'bobs.example": "Access denied for user '...'@'bobs.example",
		"failed to connect to `user=bob database=d`": "failed to connect to `user=... database=d`",
	} {
		cause := errors.New(text)
		err := (&Store{at: at}).told(cause)
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%q: %q; want %q", text, err, want)
		}
	}
	cause := errors.New("as it is")
	if err := (&Store{}).told(cause); err.Error() != "as it is" {
		t.Errorf("without a login: %v", err)
	}
	if err := (&Store{}).told(nil); err != nil {
		t.Errorf("without an error: %v", err)
	}
}

// TestDiscreetEnvironment: a password is no less secret when the address leaves it to the
// environment; and what the driver does not take is told with where it may be from.
func TestDiscreetEnvironment(t *testing.T) {
	at := backendurl.Database{Kind: backendurl.Postgres, Name: "d", Hosts: "h"}
	t.Setenv("PGPASSWORD", "s/e%t")
	s, err := New(at, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.told(errors.New("no such password: s/e%t")); err.Error() !=
		"no such password: ..." {
		t.Error(err)
	}
	for name, value := range map[string]string{"PGSSLMODE": "x", "PGTARGETSESSIONATTRS": "x",
		"PGSSLROOTCERT": os.DevNull, "PGSERVICE": "x"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := New(at, time.Minute); !errors.Is(err, fence.ErrInvalid) ||
				!strings.Contains(err.Error(), "PG variable") {
				t.Error(err)
			}
		})
	}
}
