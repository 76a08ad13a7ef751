package zkhold

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// loadTLS reads the files that the parameters name.
func (a *address) loadTLS(caFile, certFile, keyFile string) error {
	if caFile == "" && certFile == "" && keyFile == "" {
		return nil
	}
	if a.tls == nil {
		return errors.New(
			"URL: tls-ca, tls-cert and tls-key need TLS: begin the URL with zookeepers")
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return fmt.Errorf("URL: tls-ca: %w", err)
		}
		a.tls.RootCAs = x509.NewCertPool()
		if !a.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("URL: tls-ca: %s has no certificate in PEM form", caFile)
		}
	}
	if (certFile == "") != (keyFile == "") {
		return errors.New("URL: tls-cert and tls-key go together")
	}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return fmt.Errorf("URL: tls-cert, tls-key: %w", err)
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// encrypted returns a dialer that speaks TLS over the connections of another one.
func encrypted(dial Dialer, config *tls.Config) Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		config := config.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			conn.Close()
			return nil, err
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = fmt.Errorf("hangs up when TLS begins, as a server without TLS: %w", err)
			}
			return nil, err
		}
		return secured, nil
	}
}

// distrusts reports whether one side does not trust the other, or does not speak TLS. That lasts
// until somebody changes something.
func distrusts(err error) bool {
	var theirs *net.OpError // crypto/tls has no type for what the other side says
	var ours *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	return errors.As(err, &theirs) && theirs.Op == "remote error" || errors.As(err, &ours) ||
		errors.As(err, &plain)
}
