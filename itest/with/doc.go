// Package with has no code, only a test: the modules under with, each in two processes, over a
// real Redis server that freezes, forgets and dies.
package with
