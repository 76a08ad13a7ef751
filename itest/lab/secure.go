//go:build unix

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// secure is how a server serves clients by TLS. The laboratory itself talks to it without.
type secure struct {
	addr string // host:port
	ca   string // file with the certificate that vouches for it, its own
}

func (s *secure) url(address string) string {
	return "rediss://" + address + "?" + url.Values{"tls-ca": {s.ca}}.Encode()
}

// entry is where clients reach the server.
func (n *Node) entry() string {
	if n.secure != nil {
		return n.secure.addr
	}
	return n.Addr
}

// encrypt makes a server that is not started yet serve TLS, too.
func (n *Node) encrypt() error {
	host, _, _ := net.SplitHostPort(n.Addr)
	free, err := freeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(free)
	certificate, key := filepath.Join(n.dir, "certificate.pem"), filepath.Join(n.dir, "key.pem")
	if err := certify(host, certificate, key); err != nil {
		return err
	}
	n.secure = &secure{addr: net.JoinHostPort(host, port), ca: certificate}
	n.extra = []string{"--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key,
		"--tls-ca-cert-file", certificate, "--tls-auth-clients", "no"}
	return nil
}

// certify writes a key, and a self-signed certificate for the host.
func certify(host, certificateFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host},
		IPAddresses: []net.IP{net.ParseIP(host)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(write(certificateFile, "CERTIFICATE", certificate),
		write(keyFile, "PRIVATE KEY", private))
}
