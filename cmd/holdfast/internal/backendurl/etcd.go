package backendurl

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
)

// etcdScheme returns a scheme whose addresses package etcdhold parses.
func etcdScheme(name, rest string) scheme {
	params := map[string]string{
		"prefix":        prefixHelp + "; none unless set",
		"password-file": "file with the password; ETCDCTL_PASSWORD unless set",
	}
	if name == "etcd+unix" {
		params["keyspace"] = "what all keys in etcd begin with; " + etcdhold.DefaultKeyspace +
			" unless set"
	}
	if name == "etcds" {
		addCertificates(params)
	}
	s := readScheme(name, rest, params, etcdhold.Validate, func(ctx context.Context,
		address string, _ how) (driver.Backend, error) {
		b, err := etcdhold.Open(ctx, address)
		if err != nil {
			return nil, inOurWords{err} // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	})
	s.prefix = "" // the keyspace is for locks alone
	s.limits = func(map[string]string) limits { return limits{shortest: etcdhold.MinTTL} }
	return s
}

// tooShort reports whether the TTL is below the shortest one.
func (l limits) tooShort(ttl time.Duration) bool { return ttl < l.shortest }
