package main_test

import (
	"syscall"
	"testing"
)

// TestLeadInherits: the command has the file open by which the directory knows that the holder
// lives. So nobody else leads after a SIGKILL before the command is dead, too. The tests may run
// under a lock of another directory, whose file they have open, too.
func TestLeadInherits(t *testing.T) {
	on := locks(t)
	p := start(t, on, nil, "lead", "name", "-c",
		`ls -l /proc/$$/fd | grep -c "`+on+`/members/"; read x`)
	p.expect("1")
	p.signal(syscall.SIGTERM)
	p.ends()
}
