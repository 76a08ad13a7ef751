// Package withgoose runs the migrations of goose v3 under a lock of Holdfast.
//
//	migrations, err := withgoose.New(locker, "migrations")
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, fsys,
//		goose.WithLocker(migrations))
//
//	ctx, cancel := migrations.Context(ctx) // ends when the lock is lost
//	defer cancel()
//	results, err := provider.Up(ctx)
//
// The lock is where the holdfast.Locker keeps it, not in the database. So it works behind a pooler
// such as PgBouncer, which gives each transaction another connection, and with databases that have
// no locks. All processes that migrate a database have to use it, because goose's own locks do not
// know of it.
//
// # A lock that is lost while migrations run
//
// Then another process may start to migrate. goose runs migrations with the context that Up was
// called with, and does not ask its Locker meanwhile. So:
//
//   - With a context of [Locker.Context] the migration under way is interrupted, before anybody
//     else can have the lock, and no other begins. In a transaction, which is goose's default, it
//     is undone as a whole. A migration without one (goose NO TRANSACTION) may be left half done,
//     as by any error.
//   - With any other context the migrations run on. The function of [WithOnError] is told at the
//     loss, and the error of Up has a [*holdfast.LostError] joined when they are done.
//
// A process that is paused notices neither. The version table of goose does not protect from that:
// a database that must not be migrated twice needs migrations that can be repeated, or a
// transaction that fails the second time.
//
// # Waiting
//
// A process that finds the lock held waits for it until its context ends, and then usually finds
// the migrations done. It does not count retries: bound the wait with context.WithTimeout.
package withgoose
