package redishold

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// handshakePatience is how long a TLS handshake may take before the server is tried without TLS. A
// Redis without TLS takes the handshake for the beginning of a command, and waits for the rest.
const handshakePatience = 500 * time.Millisecond

// errPlain says that a server is known not to speak TLS.
var errPlain = errors.New("the server does not speak TLS: begin the URL with redis")

// secure makes the TLS handshake on a fresh connection, and closes it if that fails.
func secure(ctx context.Context, conn net.Conn, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	look := time.AfterFunc(handshakePatience, func() {
		if answersPlainly(ctx, conn.RemoteAddr()) {
			cancel(errPlain)
		}
	})
	defer look.Stop()
	secured := tls.Client(conn, config)
	err := secured.HandshakeContext(ctx)
	if err == nil {
		return secured, nil
	}
	conn.Close()
	if cause := context.Cause(ctx); errors.Is(cause, errPlain) {
		return nil, cause
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer to the TLS handshake, as from a server without TLS: %w", err)
	}
	return nil, err
}

// answersPlainly reports whether the server answers a command without TLS, even with an error.
func answersPlainly(ctx context.Context, address net.Addr) bool {
	conn, err := new(net.Dialer).DialContext(ctx, address.Network(), address.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var answer [1]byte
	_, err = io.ReadFull(conn, answer[:])
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}
