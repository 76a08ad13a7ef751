package backendurl

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// EtcdProgram is the program that locks in etcd: the client of etcd costs each start of the program
// that it is part of.
const EtcdProgram = "holdfast-etcd"

// Etcd is how etcd is reached. Its functions are set before anything else happens, and only in the
// program that has the client.
var Etcd struct {
	Validate func(address string) error
	Open     func(ctx context.Context, address string) (driver.Backend, error)
}

const (
	etcdKeyspace = "holdfast/"
	etcdMinTTL   = time.Second
)

// Program returns the name of the program that locks at the address, or "" if this one does.
func (a *Address) Program() string { return a.program }

// etcdScheme returns a scheme whose addresses package etcdhold parses.
func etcdScheme(name, rest string) scheme {
	params := map[string]string{
		"prefix":        prefixHelp + "; none unless set",
		"password-file": "file with the password; $ETCDCTL_PASSWORD unless set",
	}
	if name == "etcd+unix" {
		params["keyspace"] = "what all keys in etcd begin with; " + etcdKeyspace + " unless set"
	}
	if name == "etcds" {
		addCertificates(params)
	}
	s := readScheme(name, rest, params, func(address string) error {
		if Etcd.Validate == nil {
			return nil // the other program does
		}
		return Etcd.Validate(address)
	}, func(ctx context.Context, address string, _ how) (driver.Backend, error) {
		if Etcd.Open == nil {
			return nil, errors.New("etcd needs the program " + EtcdProgram)
		}
		b, err := Etcd.Open(ctx, address)
		if err != nil {
			return nil, inOurWords{err}
		}
		return b, nil
	})
	s.prefix = "" // the keyspace is for locks alone
	s.limits = func(map[string]string) limits { return limits{shortest: etcdMinTTL} }
	s.etcd = true
	return s
}

// tooShort reports whether the TTL is below the shortest one.
func (l limits) tooShort(ttl time.Duration) bool { return ttl < l.shortest }
