// Package deadlock finds processes that wait for each other, by what a backend shows of its keys.
//
// A backend shows which process holds a key and which waits for one. It does not show which of its
// goroutines does. So what is found is a possible deadlock: the goroutine that waits may be another
// one than the one that holds.
package deadlock
