// Package sqltest has only tests: of package sqlfence, on PostgreSQL, MariaDB and SQLite, and
// benchmarks of all guards beside the bare writes, also for Redis, files, etcd, S3 and HTTP, so
// that one command measures all of them. It is a module of its own, and never released, since it
// needs their drivers and clients.
package sqltest
