package sqlguard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// authorities reads a file of certificates, which the parameter names.
func authorities(parameter, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("parameter %s: %w", parameter, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("parameter %s: %s has no certificate in PEM form", parameter, path)
	}
	return pool, nil
}

// checkPostgresTLS fails if the address names authorities that cannot be read, or by which no
// server would be verified. A user who names authorities wants servers to be verified.
func checkPostgresTLS(config *pgconn.Config, rootCert string) error {
	if rootCert == "" {
		return nil
	}
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port,
		TLSConfig: config.TLSConfig}
	if verifiesNobody(first) || slices.ContainsFunc(config.Fallbacks, verifiesNobody) {
		return errors.New(
			"parameter sslrootcert is given, and sslmode verifies nobody; write sslmode=verify-full")
	}
	return nil
}

// verifiesNobody reports whether any other server would be accepted in place of this one. A socket
// needs no check, because it is a file with an owner.
func verifiesNobody(server *pgconn.FallbackConfig) bool {
	network, _ := pgconn.NetworkAddress(server.Host, server.Port)
	return network != "unix" && (server.TLSConfig == nil || server.TLSConfig.InsecureSkipVerify &&
		server.TLSConfig.VerifyPeerCertificate == nil) // which is that of verify-ca
}

// setMySQLTLS has the driver encrypt if the server can, as that of PostgreSQL does, unless the
// parameters say something else.
func setMySQLTLS(config *mysql.Config, host string, params map[string]string) error {
	mode, err := mysqlTLSMode(config.Net, params)
	if err != nil {
		return err
	}
	if mode != "true" {
		config.TLSConfig = mode
		return nil
	}
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	return readMySQLFiles(config.TLS, params)
}

// mysqlTLSMode returns the value of the parameter tls, or what stands for it if it is not given.
func mysqlTLSMode(network string, params map[string]string) (string, error) {
	mode, given := params["tls"]
	files := params["tls-ca"] != "" || params["tls-cert"] != "" || params["tls-key"] != ""
	switch {
	case files && !given:
		mode = "true"
	case files && mode != "true":
		return "", errors.New(
			"parameters tls-ca, tls-cert and tls-key need tls=true: any other verifies nobody")
	case !given && network == "unix":
		mode = "false"
	case !given:
		mode = "preferred"
	}
	switch mode {
	case "false", "preferred", "skip-verify", "true":
		return mode, nil
	}
	return "", errors.New("parameter tls is none of false, preferred, skip-verify and true")
}

// readMySQLFiles reads the authorities and the certificate that the parameters name.
func readMySQLFiles(config *tls.Config, params map[string]string) (err error) {
	if path := params["tls-ca"]; path != "" {
		if config.RootCAs, err = authorities("tls-ca", path); err != nil {
			return err
		}
	}
	if (params["tls-cert"] == "") != (params["tls-key"] == "") {
		return errors.New("parameters tls-cert and tls-key go together")
	}
	if path := params["tls-cert"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, params["tls-key"])
		if err != nil {
			return fmt.Errorf("parameters tls-cert and tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}
