//go:build unix

package testserver

import (
	"os/user"
	"strconv"
	"syscall"
)

// credential returns the credential of the account, or that of the account nobody.
func credential(account string) (*syscall.Credential, error) {
	a, err := user.Lookup(account)
	if err != nil {
		a, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(a.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(a.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
