package child

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStopThatIsSeenLate: a child that was told to end, and has stopped itself again within the
// grace, is killed even if the end of the grace is seen before that stop.
func TestStopThatIsSeenLate(t *testing.T) {
	for _, c := range []struct {
		name, script string
		state        int // of the child at the end of the grace
		killed       bool
	}{
		{"stops", `kill -STOP $$; exit 3`, unix.WSTOPPED, true},
		{"runs", `read x`, 0, false},
		{"has ended", `exit 3`, unix.WEXITED, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			in, err := cmd.StdinPipe() // what reads it runs until it is closed
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			awaitState(t, pid, c.state)
			s := &supervisor{pid: pid, waitFor: pid, told: make(chan time.Time), defied: 1,
				options: Options{Warn: func(err error) { t.Error(err) }}}
			defer func() {
				if !s.ended {
					cmd.Process.Kill()
					cmd.Wait()
				}
			}()
			s.endDefiant()
			if s.killed != c.killed {
				t.Errorf("killed: %v, want %v", s.killed, c.killed)
			}
			if s.ended != (c.state == unix.WEXITED) {
				t.Errorf("ended: %v", s.ended)
			}
		})
	}
}

// awaitState waits until a child is in that state, and leaves the news of it to the supervisor. If
// state is 0 it does not wait.
func awaitState(t *testing.T, pid, state int) {
	t.Helper()
	for state != 0 {
		switch err := unix.Waitid(unix.P_PID, pid, nil, state|unix.WNOWAIT, nil); {
		case err == nil:
			return
		case !errors.Is(err, syscall.EINTR):
			t.Fatal(err)
		}
	}
}
