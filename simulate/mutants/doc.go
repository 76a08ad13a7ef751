// Package mutants breaks the kernel on purpose, to show that the simulator notices. A patch in this
// folder says what is replaced by what in which file, in the form of package
// [github.com/holdfast-go/holdfast/internal/patch].
package mutants
