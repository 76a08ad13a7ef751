//go:build unix

package zookeepertest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// StartTLS is Start for a server that also speaks TLS, at the second address, and there asks
// clients for certificates. The files are in PEM form. At its own address it speaks without TLS.
func StartTLS(t testing.TB, ca, cert, key string) (s Server, secured string, err error) {
	port := strconv.Itoa(testserver.FreePort(t))
	s, err = prepare(t, "secureClientPortAddress=127.0.0.1", "secureClientPort="+port,
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location="+store, "ssl.keyStore.type=PEM",
		"ssl.trustStore.location="+authorities, "ssl.trustStore.type=PEM", "ssl.clientAuth=need",
		// Otherwise it would look for the client's host in the certificate.
		"ssl.hostnameVerification=false")
	if err != nil {
		return Server{}, "", err
	}
	if err := s.bring(ca, cert, key); err != nil {
		return Server{}, "", errors.Join(err, s.Remove())
	}
	if err := s.Run(); err != nil {
		return Server{}, "", errors.Join(err, s.Remove())
	}
	return s, net.JoinHostPort("127.0.0.1", port), nil
}

// The files of a server, in the directory where it runs.
const store, authorities = "server.pem", "authorities.pem"

// bring puts the files where the server may read them: a key and its certificate in one, the key in
// the only form that it knows.
func (s Server) bring(ca, cert, key string) error {
	trusted, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	own = append(own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: pair.Certificate[0]})...)
	return errors.Join(os.WriteFile(filepath.Join(s.Dir, store), own, 0o644),
		os.WriteFile(filepath.Join(s.Dir, authorities), trusted, 0o644))
}
