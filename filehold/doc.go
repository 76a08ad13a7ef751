// Package filehold is a backend on a directory: it excludes the processes of one machine from each
// other, with nothing to install and nothing to run.
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
// A process that dies, however it dies, frees its keys at once, because the operating system closes
// its files. A process that is stopped or hangs blocks the keys that it holds or waits for, for at
// most its TTL; see also the caveats. It blocks no other key, wherever it is stopped, because no
// file lock covers the whole directory. Waiters queue in the order in which they came, over all
// processes. The next one gets a message. If it shares the key, those behind it that share it get a
// message too, up to the first that does not. Of several processes that share a key, each frees its
// part when it dies. Fencing tokens never go back, also after a power loss and when processes are
// killed at any point, as long as nobody replaces files in the directory.
//
// A symbolic link, a relative path and a bind mount all lead to the same directory, and so to the
// same locks.
//
// # Caveats
//
// A process changes a key under a file lock of that key, which it keeps for some microseconds. If
// it is stopped just then, it keeps the file lock until it runs again. Until then nobody can
// acquire, renew or release that one key. A holder in another process learns that it cannot renew,
// and its lease ends. Nobody else gets the key, and waiters may lose their places. List and Inspect
// still show the key. If a call is cut off by this, its error names the key and, on Linux, the
// process. A renewal of several keys still answers for the others. Continue that process or kill
// it. If a process is stopped while it cleans up after dead ones, nobody else cleans up: files
// stay, but no key is blocked.
//
// One machine means one running kernel. Open refuses network file systems that it recognises (on
// Linux, macOS and FreeBSD). It cannot recognise every directory that several machines share, for
// example a FUSE mount. Do not use such a directory.
//
// All users of a directory trust each other: everybody who can write to it can take a lock away.
// See [WithSharedDirectory].
//
// On Linux, leases count the time in which the machine is suspended. On other systems they follow
// the wall clock, the only clock that all processes share there. So setting it forward ends leases
// early.
//
// Containers may share a directory on a local file system. On Linux, a process finds by
// /proc/self/ns/time whether it has the same clock as the others. Its /proc may show processes only
// (subset=pid), and its boot_id may be its own. Each such process, and each change from one boot_id
// to another, costs an fsync in Open. Open refuses a process in another time namespace while others
// use the directory. It also refuses a process without /proc beside processes with one, and the
// reverse.
//
// Removing the directory, or the file of a key or of an open Backend, takes locks away. Their
// holders learn it at the next renewal. Replacing the file of a key, or the directory keys, by an
// older copy takes locks away too: the older content is then in force.
//
// Tokens go back if an older copy replaces the directory fence, or a new directory replaces the
// whole one. Then the guarded store refuses new holders. A process that has drawn a token since
// then refuses to grant older ones, and says so; other processes cannot know. You may remove, move
// and copy the counter in fence at any time, but never put an older one in its place. If the bound
// is lost, Open and Acquire say so. Then make an empty file in fence, whose name is a number not
// below any granted token.
//
// Do not read the named pipes in members, not even to look. A dead member whose pipe somebody reads
// seems to live, and its leases then last until their TTLs are over.
//
// A cleaner of temporary directories that spares sticky files, such as systemd-tmpfiles, spares all
// files on Linux. While the directory is open, such a cleaner may remove the directory keys when no
// key is in use; filehold makes it again.
//
// Systems without flock, such as Windows, are not supported: Open says so.
//
// # What is in the directory
//
//	holdfast        marks the directory and its layout
//	fence/          the durable bound of the tokens, as the name of a file; and their counter
//	keys/           one small file for each key that is held or waited for, and none for any other
//	members/        a named pipe for each open Backend, which it keeps open while it lives
//
// Do not restore any of it from a backup: locks that were released would be held again, and tokens
// would go back.
package filehold
