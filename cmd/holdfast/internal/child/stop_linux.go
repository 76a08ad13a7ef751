package child

import "golang.org/x/sys/unix"

// stopSelf stops this process, and returns when it has been continued. The signal goes to the calling thread, which
// therefore does not get to run another instruction before it is stopped; sent to the process, another thread may take it,
// and this one goes on for a while.
func stopSelf() error { return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP) }
