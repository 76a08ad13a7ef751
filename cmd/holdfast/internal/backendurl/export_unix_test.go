//go:build unix

package backendurl

import "testing"

// SetTemporary sets where the user's directory is made, for one test.
func SetTemporary(t *testing.T, dir string) {
	before := temporary
	temporary = dir
	t.Cleanup(func() { temporary = before })
}
