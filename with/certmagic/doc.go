// Package withcertmagic gives a storage of certmagic the locks of Holdfast.
//
//	files := &certmagic.FileStorage{Path: "/mnt/shared/certificates"}
//	storage, err := withcertmagic.New(locker, files)
//	certmagic.Default.Storage = storage
//
// Certificates and keys stay where they are. All who use the storage have to use these locks, as
// the storage's own do not know of them. Names of locks are keys as certmagic makes them, such as
// issue_cert_example.com: give the Locker a holdfast.WithPrefix. For Caddy, a storage module of
// yours returns what New does.
//
// # A lock that is lost while a certificate is obtained
//
// Another process may then obtain the same certificate at the same time. certmagic has no way to
// end the attempt under way, and tolerates that: it costs an order at the authority, and the last
// one that is stored counts. What happens is this:
//
//   - The function of [WithOnError] is told at the loss.
//   - Before the next attempt certmagic renews the lease of the lock. [Storage.RenewLockLease] then
//     waits for the lock anew. When it has it certmagic looks again whether there is a certificate
//     by now.
//
// A lock that was only late to be renewed does not need that: it is renewed for as long as the
// process lives, whatever the attempts take.
package withcertmagic
