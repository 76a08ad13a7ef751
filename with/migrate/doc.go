// Package withmigrate runs the migrations of golang-migrate v4 under a lock of Holdfast.
//
//	driver, err := postgres.WithInstance(db, &postgres.Config{})
//	driver, err = withmigrate.New(locker, "migrations", driver)
//	m, err := migrate.NewWithInstance("file", source, "postgres", driver)
//	err = m.Up()
//
// golang-migrate has no place for another lock. But a migrate.Migrate asks its database driver for
// the lock, so [New] puts around that driver another one, which answers in its place. All processes
// that migrate a database have to do so. Processes that do not are excluded only with
// [WithDriverLock].
//
// # What it cannot replace
//
// Most drivers also take their own lock in WithInstance and Open, while they make the version
// table. No code outside of them can change that. Behind a pooler that gives each transaction
// another connection, that lock may stay behind. Make the table beforehand, over a direct
// connection, or set the driver's parameter for this: x-no-lock=true of MySQL,
// x-lock-strategy=table of pgx.
//
// # A lock that is lost while migrations run
//
// Then another process may start to migrate. golang-migrate has no context, so a migration that is
// under way cannot be interrupted. What happens is this:
//
//   - The function of [WithOnError] is told at the loss.
//   - The migration under way goes on, and its version is marked as clean when it is done. Until
//     then the version is dirty, and that keeps others from migrating: they fail with
//     migrate.ErrDirty.
//   - No other migration begins: before each, the driver looks at the lock, and fails with a
//     [*holdfast.LostError]. If there is none to begin, that is the error at the end. The
//     migrate.Migrate then stays locked: make another.
//
// A process that is paused just after it has looked may still begin one.
//
// # Waiting
//
// A process that finds the lock held waits for it, for [DefaultWait], and then fails with
// database.ErrLocked. migrate.Migrate.LockTimeout has to be longer: when it is over, a
// migrate.Migrate leaves its call for the lock behind, and would never unlock a lock that the call
// still gets.
package withmigrate
