// Package role lets a test program play the part of another program in a process of its own: one that prints its
// signals, one that ignores them, a shell with job control. The part is named by an environment variable, so that
// it reaches whatever process the test is about.
package role
