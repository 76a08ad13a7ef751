// Package board shows the locks of a backend on a page in a browser, live, and frees one if it was
// told to allow that.
//
// One reader looks at the backend for all who watch, and only while somebody does. What a look has
// found is kept as one state, which is encoded once. Whoever is slow skips states, so nobody waits
// for another, and no queue grows.
//
// What the page shows was written by others. The server escapes all that is not printable, and the
// page makes text nodes of it, never markup; its policy allows no script but its own file.
package board
