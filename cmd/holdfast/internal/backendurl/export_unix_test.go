//go:build unix

package backendurl

import "testing"

// SetTemporary sets the directory in which UserDir works, for one test.
func SetTemporary(t *testing.T, dir string) {
	before := temporary
	temporary = dir
	t.Cleanup(func() { temporary = before })
}
