// Package withcertmagic gives a storage of certmagic the locks of Holdfast.
//
//	files := &certmagic.FileStorage{Path: "/mnt/shared/certificates"}
//	storage, err := withcertmagic.New(locker, files)
//	certmagic.Default.Storage = storage
//
// Certificates and keys stay where they are. All processes that use the storage have to use these
// locks, because the storage's own locks do not know of them. Names of locks are keys as certmagic
// makes them, such as issue_cert_example.com, so give the Locker a holdfast.WithPrefix. For Caddy,
// write a storage module that returns what New does.
//
// # A lock that is lost while a certificate is obtained
//
// Another process may then obtain the same certificate at the same time. certmagic has no way to
// end the attempt under way, and tolerates that: it costs an order at the authority, and the
// certificate that is stored last counts. What happens is this:
//
//   - The function of [WithOnError] is told at the loss.
//   - Before the next attempt certmagic renews the lease of the lock. [Storage.RenewLockLease] then
//     waits for the lock anew. When it has the lock, certmagic looks whether there is a certificate
//     by now.
//
// A lock that is not lost is renewed for as long as the process lives, however long the attempts
// take.
package withcertmagic
