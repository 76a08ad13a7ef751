// Package lab is the fault laboratory: real redis-servers, real client processes, a network between
// them that can be spoiled, and a nemesis that breaks all of it while clients lock. What they saw
// is a history, to be checked by package check.
//
// It is for Unix alone, as the servers and the signals that stop processes are: elsewhere there is
// nothing in it.
package lab
