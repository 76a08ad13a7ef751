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
// The lock is where the holdfast.Locker keeps it, and not in the database. So it works behind a
// pooler such as PgBouncer, which gives each transaction another connection, and with databases
// that have no locks. All who migrate a database have to use it: goose's own locks do not know of
// it.
//
// # A lock that is lost while migrations run
//
// Another process may start to migrate then. goose runs migrations with the context that Up was
// called with, and asks its Locker nothing meanwhile. So:
//
//   - With a context of [Locker.Context] the migration under way is interrupted, before anybody
//     else can have the lock, and no other begins. In a transaction, which is goose's default, it
//     is undone as a whole. A migration without one (goose NO TRANSACTION) may be left half done,
//     as by any error.
//   - With any other context the migrations run on. The function of [WithOnError] is told at the
//     loss, and the error of Up has a [*holdfast.LostError] joined when they are done.
//
// A process that is paused notices neither. The version table of goose is no guard against that: a
// database that must not be migrated twice needs migrations that can be repeated, or a transaction
// that fails the second time.
//
// # Waiting
//
// A process that finds the lock held waits for it until its context ends, and then usually finds
// the migrations done. It asks for no number of retries: use context.WithTimeout.
package withgoose
