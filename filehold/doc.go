// Package filehold is a backend on a directory: it excludes the processes of one machine from each other, with
// nothing to install and nothing to run.
//
//	backend, err := filehold.Open("/var/lib/myservice/locks")
//	if err != nil {
//		return err
//	}
//	defer backend.Close()
//	locker, err := holdfast.New(backend)
//
// # What it promises
//
// A process that dies, however it dies, frees what it held at once: the kernel ends its file lock. One that
// is stopped or hangs costs at most its TTL. Waiters queue in the order in which they came, over all
// processes; the one whose turn it is gets a message, and needs no further look at the directory. Fencing tokens never go back,
// also when processes are killed at any point, and after a power loss.
//
// The directory is known by what it is, not by how it is spelled: through a symbolic link, a relative path or a bind mount it
// is the same one, and so are the locks in it.
//
// # Caveats
//
// One machine means one running kernel. A directory on a network file system is refused where it is recognised (on
// Linux, macOS and FreeBSD); directories that several machines share by other means, for example a FUSE mount, can
// not be told from local ones: do not use them.
//
// All who use a directory trust each other: whoever can write to it can take a lock away. See [WithSharedDirectory].
//
// Leases count the time in which the machine is suspended on Linux. Elsewhere they are counted by the wall clock, the only one
// that all processes share there, so setting it forward ends leases early.
//
// Removing the directory, or a file in it, takes locks away: those who held them are told at their next renewal.
//
// Systems without flock, Windows among them, are not served: Open says so.
//
// # What is in the directory
//
//	holdfast        marks the directory and its layout
//	mutex           the file lock under which everything else is changed; holds the token counter
//	fence           the durable bound of the tokens
//	keys/           one small file for each key that is held or waited for, and none for any other
//	members/        three files for each open Backend: one that it keeps locked while it lives, and two named pipes
//
// Nothing in it is worth a backup but the fence.
package filehold
