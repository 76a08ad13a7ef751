// Package role lets a test program act as another program in a process of its own: one that prints
// its signals, one that ignores them, a shell with job control. An environment variable names the
// role, so that it reaches the right process through others.
package role
