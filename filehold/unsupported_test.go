//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filehold_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func TestOpenSaysThatItCannotServe(t *testing.T) {
	_, err := filehold.Open(t.TempDir())
	if !driver.Permanent(err) || !strings.Contains(err.Error(), runtime.GOOS) {
		t.Errorf("Open: %v; want a permanent error that names %s", err, runtime.GOOS)
	}
}
