// Package hygiene holds the rules of this repository that a program can check: what it imports,
// documents and names. It has only tests. Each complaint gives its reason.
package hygiene
