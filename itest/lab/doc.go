// Package lab is the fault laboratory: real servers, real client processes, a network between them
// that can be spoiled, and a nemesis that breaks all of it while clients lock. What clients and
// servers saw is a history, which package check checks.
//
// It is for Unix alone, like the servers and the signals that stop processes. On other systems it
// is empty.
package lab
