//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are files in PEM form: an authority, and what it has issued for a server at
// 127.0.0.1 and for a client.
type Certificates struct {
	CA         string      // file with the authority's certificate
	ServerCert string      // file
	ServerKey  string      // file
	ClientCert string      // file
	ClientKey  string      // file
	Client     *tls.Config // of a client that has all it needs
}

// NewCertificates makes a new authority and what it issues.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	issue := func(name string, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (cert,
		key string, parsed *x509.Certificate, private *ecdsa.PrivateKey) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		if signer == nil {
			parent, signer = template, private
		}
		template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
		must(err)
		template.Subject = pkix.Name{CommonName: name}
		template.NotBefore = time.Now().Add(-time.Hour)
		template.NotAfter = time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent,
			&private.PublicKey, signer)
		must(err)
		parsed, err = x509.ParseCertificate(der)
		must(err)
		keyDER, err := x509.MarshalECPrivateKey(private)
		must(err)
		return write(name+".crt", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", keyDER),
			parsed, private
	}

	c := new(Certificates)
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	c.CA, _, ca, caKey = issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	c.ServerCert, c.ServerKey, _, _ = issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		// The nodes of a cluster are each other's clients.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, caKey)
	c.ClientCert, c.ClientKey, _, _ = issue("client", &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, caKey)

	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	c.Client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return c
}
