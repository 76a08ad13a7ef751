package backendurl

// postgresLocks returns the scheme of locks in a database, whose addresses package pghold parses.
func postgresLocks(name string) scheme {
	return clientScheme(PostgresProgram, name,
		"[user[:password]@]host[:port][,host[:port]...]/database",
		map[string]string{
			"prefix":   prefixHelp + "; none unless set",
			"create":   "true to make the tables unless they are there; false unless set",
			"durable":  "always if the server loses no commit in a crash or takeover",
			"host":     "directory of the server's socket, in place of a host",
			"passfile": "file with passwords; ~/.pgpass unless set",
			"sslmode": "disable, prefer, require, verify-ca or verify-full; prefer unless set, " +
				"which does not verify the server",
			"sslrootcert": "file with the certificates of the authorities to trust",
			"sslcert":     "file with the certificate of the client",
			"sslkey":      "file with the key of the client",
		})
}
