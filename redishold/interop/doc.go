// Package interop has only tests: locks of Holdfast and of other libraries on one Redis exclude
// each other. Each other library is its real client, run as it is published. The module is not
// released.
package interop
