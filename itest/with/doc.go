// Package with has only tests, of the modules under with. TestFaults has each of them in two
// goroutines, over a real Redis server that freezes, forgets and dies. TestProcesses has all of
// them in two processes, of which the one that works is stopped or killed.
//
// The module with/controllerruntime is not here: the packages of Kubernetes would take minutes to
// compile, in every run of the laboratory. Its own TestFaults has the same faults, in memory. The
// adapter syncview has no library that could be tried.
package with
