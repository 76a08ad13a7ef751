// Package sqltest has only tests. It tests package sqlfence on PostgreSQL, MariaDB and SQLite. Its
// benchmarks measure all guards beside bare writes, also those for Redis, files, etcd, S3 and HTTP,
// so that one command measures all of them. It is a module of its own, never released, because it
// needs their drivers and clients.
package sqltest
