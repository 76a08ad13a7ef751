//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestStartIsLight: every run of a command pays for what packages do before main. So no linked
// package may compile patterns or make tables that most starts do not need. The test counts the
// memory that they allocate, which is the same each time.
func TestStartIsLight(t *testing.T) {
	const one, all = 16 << 10, 144 << 10
	// The package that draws holdfast watch has a table of key names. It takes hundredths of a
	// millisecond.
	const drawing = "github.com/charmbracelet/ultraviolet"
	cmd := exec.Command(holdfastPath, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum := 0
	for _, match := range regexp.MustCompile(
		`(?m)^init (\S+) @.* (\d+) bytes,`).FindAllStringSubmatch(string(out), -1) {
		bytes, err := strconv.Atoi(match[2])
		if err != nil {
			t.Fatal(err)
		}
		if sum += bytes; bytes > one && (match[1] != drawing || bytes > 2*one) {
			t.Errorf("package %s takes %d bytes before main, and %d are allowed for one", match[1],
				bytes, one)
		}
		if strings.Contains(match[1], "/holdfast/fence") && bytes > 0 {
			t.Errorf("package %s takes %d bytes before main, for what holdfast run never does",
				match[1], bytes)
		}
	}
	if sum == 0 || sum > all {
		t.Errorf(
			"packages take %d bytes before main, and %d are allowed; none means that this was not told:\n%s",
			sum, all, out)
	}
}
