// Package testserver starts servers of all kinds for tests, in the same way. Each has a directory
// and a port or socket of its own. It is awaited until it answers, stopped when the test is over,
// and killed when the test's process ends in any way. Its log is shown when the test fails. If a
// program is missing, the error says how to install it. The packages below it know one kind of
// server each: redistest, postgrestest, mariadbtest, etcdtest, zookeepertest, versitytest,
// prometheustest.
//
// It is internal, so no user depends on it. It is in the kernel's module, so that the tests of all
// modules can import it. They could not import a module that is never released: go mod tidy also
// reads the tests of what a module imports, so it would fail for every user. A package here keeps
// its path, because a release that imports it may be combined with any later kernel.
package testserver
