package main_test

import (
	"syscall"
	"testing"
)

// TestLeadInherits: the command has the file open by which the directory knows that the holder
// lives. So nobody else leads after a SIGKILL before the command is dead as well.
func TestLeadInherits(t *testing.T) {
	p := start(t, locks(t), nil, "lead", "name", "-c",
		`ls -l /proc/$$/fd | grep -c /members/; read x`)
	p.expect("1")
	p.signal(syscall.SIGTERM)
	p.ends()
}
