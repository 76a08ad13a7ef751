package backendurl

import "time"

const (
	etcdKeyspace = "holdfast/"
	etcdMinTTL   = time.Second
)

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
	s := clientScheme(EtcdProgram, name, rest, params)
	s.limits = func(map[string]string) limits { return limits{shortest: etcdMinTTL} }
	return s
}

// tooShort reports whether the TTL is below the shortest one.
func (l limits) tooShort(ttl time.Duration) bool { return ttl < l.shortest }
