// Package board shows the locks of a backend on a page in a browser, live, and frees one if it was
// told to allow that.
//
// One reader looks at the backend for all viewers, and only while there are any. What a look has
// found is kept as one state, which is encoded once. A slow viewer skips states, so no viewer waits
// for another, and no queue grows.
//
// What the page shows was written by others. The server escapes everything that is not printable.
// The page shows it as text nodes, never as markup, and its policy allows no script but its own
// file.
package board
