// Package report tells people what a run of the laboratory showed: figures, findings, and a
// picture.
//
// It is for Unix alone, as package lab is.
package report
