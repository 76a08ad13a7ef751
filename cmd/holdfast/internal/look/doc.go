// Package look shows what a backend knows: who holds a key, since when, whether the holder is
// alive, who waits, and what was left behind. It changes nothing.
//
// What it shows was written by others: names, labels, hosts and the values of other libraries. All
// of that is escaped before it is printed.
package look
