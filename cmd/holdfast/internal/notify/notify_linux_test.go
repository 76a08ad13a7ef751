package notify_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/notify"
)

func TestTell(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "s"),
		"@holdfast-test-" + strconv.Itoa(os.Getpid())} {
		socket, err := net.ListenPacket("unixgram", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", name)
		t.Setenv("WATCHDOG_USEC", "3000000")
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		m, err := notify.Dial()
		if err != nil || m.Every() != 1500*time.Millisecond {
			t.Fatalf("%v, every %v, want 1.5s", err, m.Every())
		}
		if err = m.Tell("READY=1", "STATUS=a\nb"); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 100)
		n, _, err := socket.ReadFrom(text)
		if got := string(text[:n]); err != nil || got != "READY=1\nSTATUS=a b" {
			t.Errorf("the manager hears %q, %v", got, err)
		}
		m.Close()
		socket.Close()
		t.Setenv("WATCHDOG_PID", "1")
		if _, err = notify.Dial(); err == nil && name[0] != '@' {
			t.Error("no error although nobody listens")
		}
	}
}

// Without a manager all of it does nothing.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m, err := notify.Dial()
	if m != nil || err != nil || m.Every() != 0 || m.Tell("READY=1") != nil || m.Close() != nil {
		t.Errorf("%v, %v, want nothing", m, err)
	}
}
