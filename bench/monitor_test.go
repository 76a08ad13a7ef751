package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// behind runs f in a bubble of fake time, with a monitor of a server that answers at once. The
// server shows the monitor what is written to shows.
func behind(t *testing.T, f func(t *testing.T, watch *monitor, shows net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		shown, shows := net.Pipe()
		defer shows.Close()
		watch := &monitor{conn: shown, done: make(chan struct{}),
			ping: func() error { return nil }}
		go watch.read(bufio.NewReader(shown))
		f(t, watch, shows)
	})
}

// TestMonitorIsBehind: the monitor counts all that was sent, even what it is shown only after the
// server has answered everything.
func TestMonitorIsBehind(t *testing.T) {
	behind(t, func(t *testing.T, watch *monitor, shows net.Conn) {
		written := make(chan error, 1)
		go func() {
			for _, line := range []string{`[0 h:1] "EVAL" "x"`, `[0 lua] "get" "x"`,
				`[0 h:1] "GET" "x"`, `[0 h:1] "PING" "` + mark + `"`} {
				time.Sleep(time.Second)
				if _, err := io.WriteString(shows, "+1700000000.0 "+line+"\r\n"); err != nil {
					written <- fmt.Errorf("%s: %w", line, err)
					return
				}
			}
			written <- nil
		}()
		if sent, inner, err := watch.stop(); err != nil || sent != 2 || inner != 1 {
			t.Errorf("%v sent, %v inner, %v; want 2 and 1", sent, inner, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

// TestMonitorIsShownNothing: it is an error if the monitor never sees the last command.
func TestMonitorIsShownNothing(t *testing.T) {
	behind(t, func(t *testing.T, watch *monitor, _ net.Conn) {
		if _, _, err := watch.stop(); err == nil || !strings.Contains(err.Error(), "MONITOR") {
			t.Errorf("error %v, want one that names MONITOR", err)
		}
	})
}
