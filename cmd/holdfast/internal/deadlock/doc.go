// Package deadlock finds processes that wait for each other, by what a backend shows of its keys.
//
// A backend shows which process holds a key and which waits for one. It does not show which
// goroutine does. So what is found is a possible deadlock: one goroutine of a process may wait
// while another one holds.
package deadlock
