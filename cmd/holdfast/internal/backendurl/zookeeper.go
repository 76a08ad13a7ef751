package backendurl

import "time"

// zooKeeperSession is the timeout of a session unless the address has another one.
const zooKeeperSession = 40 * time.Second

// zooKeeperScheme returns a scheme of locks in ZooKeeper, whose addresses package zkhold parses.
func zooKeeperScheme(name string) scheme {
	params := map[string]string{
		"prefix":        prefixHelp + "; none unless set",
		"password-file": "file with the password",
		"session": "timeout of the session; " + zooKeeperSession.String() +
			" unless set. A TTL is three quarters of it at most",
	}
	if name == "zookeepers" {
		addCertificates(params)
	}
	s := clientScheme(ZooKeeperProgram, name,
		"[user:password@]host[:port][,host[:port]...][/root]", params)
	s.limits = func(params map[string]string) limits {
		session, err := time.ParseDuration(params["session"])
		if err != nil {
			session = zooKeeperSession
		}
		return limits{longest: session / 4 * 3, why: "three quarters of session, which are"}
	}
	return s
}
