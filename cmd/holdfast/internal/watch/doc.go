// Package watch shows the locks of a backend on a terminal, live.
package watch
