package redishold

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// schemes are the forms of URLs. "rediss" in place of "redis" means TLS.
var schemes = map[string]struct {
	mode      mode
	tls, unix bool
}{
	"redis":           {},
	"rediss":          {tls: true},
	"redis+unix":      {unix: true},
	"redis+sentinel":  {mode: sentinel},
	"rediss+sentinel": {mode: sentinel, tls: true},
	"redis+cluster":   {mode: cluster},
	"rediss+cluster":  {mode: cluster, tls: true},
}

// parse reads a URL. Its errors quote the part that is wrong, unless that may be a piece of a password.
func (g *config) parse(raw string) error {
	err := g.parseParts(raw)
	// A password with a '/' or '?' in it ends where it looks like the path, and the rest of it up to the '@'
	// is taken for something else.
	_, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "/?#"); err != nil && i >= 0 && strings.Contains(rest[i:], "@") {
		return errors.New("URL: not well formed, with an '@' behind '/', '?' or '#': in user name, password and parameters escape these with %")
	}
	return err
}

func (g *config) parseParts(raw string) error {
	name, rest, ok := strings.Cut(raw, "://")
	scheme, known := schemes[name]
	if !ok || !known {
		return errors.New("URL: must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster:// (or rediss+ for TLS)")
	}
	g.mode, g.unix = scheme.mode, scheme.unix
	if scheme.tls {
		g.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	// Apart from the hosts, of which there may be several, it is an ordinary URL.
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("redis://" + user + "host" + tail)
	if err != nil {
		return errors.New("URL: user name, password, path or parameters are not well formed: escape special characters with %")
	}
	if u.Fragment != "" {
		return errors.New("URL: has a fragment after '#', which means nothing here: escape the character with %23")
	}
	if u.User != nil {
		g.username = u.User.Username()
		g.password, _ = u.User.Password()
	}
	if err := g.setHosts(hosts); err != nil {
		return err
	}
	if err := g.setPath(u.Path); err != nil {
		return err
	}
	return g.setParameters(u.RawQuery)
}

func (g *config) setHosts(hosts string) error {
	if g.unix {
		if hosts != "" {
			return fmt.Errorf("URL: host %q before the path of a socket: three slashes are needed", hosts)
		}
		return nil
	}
	port := "6379"
	if g.mode == sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := hostPort(host, port)
		if err != nil {
			return err
		}
		g.addresses = append(g.addresses, address)
	}
	if g.mode == standalone && len(g.addresses) != 1 {
		return fmt.Errorf("URL: %d hosts for one server: use redis+cluster:// or redis+sentinel://, or redlock:// for independent servers", len(g.addresses))
	}
	return nil
}

// hostPort completes "host", "host:port", "[::1]" or "[::1]:port".
func hostPort(s, port string) (string, error) {
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	} else if strings.ContainsAny(s, ":[]") {
		return "", fmt.Errorf("URL: host %q: must be host, host:port or [address]:port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("URL: port %q of host %q: must be 1 to 65535", port, host)
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

func (g *config) setPath(path string) error {
	if g.unix {
		if path == "" {
			return errors.New("URL: redis+unix:// needs the path of a socket")
		}
		g.addresses = []string{path}
		return nil
	}
	path = strings.TrimPrefix(path, "/")
	if g.mode == sentinel {
		g.primary, path, _ = strings.Cut(path, "/")
		if g.primary == "" {
			return errors.New("URL: redis+sentinel:// needs the name of the primary as its path")
		}
	}
	return g.setDatabase(path)
}

func (g *config) setDatabase(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return fmt.Errorf("URL: database %q: must be a number, 0 or more", s)
	}
	if n != 0 && g.mode == cluster {
		return fmt.Errorf("URL: database %d: a cluster has only database 0", n)
	}
	g.database = int(n)
	return nil
}

// setParameters reads what follows '?'. Each may be given once.
func (g *config) setParameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("URL: parameters are not well formed: escape special characters with %")
	}
	var caFile, certFile, keyFile string
	for name, all := range values {
		if len(all) != 1 {
			return fmt.Errorf("URL: parameter %q is given %d times", name, len(all))
		}
		value := all[0]
		switch name {
		case "db":
			err = g.setDatabase(value)
		case "tls-ca":
			caFile = value
		case "tls-cert":
			certFile = value
		case "tls-key":
			keyFile = value
		case "wait":
			n, bad := strconv.ParseUint(value, 10, 8)
			if bad != nil {
				err = fmt.Errorf("URL: wait %q: must be the number of replicas to wait for, 0 to 255", value)
			}
			g.replicas = int(n)
		case "wait-timeout":
			g.replicaTimeout, err = time.ParseDuration(value)
			if err != nil || g.replicaTimeout < time.Millisecond || g.replicaTimeout > time.Second {
				err = fmt.Errorf("URL: wait-timeout %q: must be a duration of 1ms to 1s", value)
			}
		case "sentinel-user":
			g.sentinelUsername = value
		case "sentinel-password":
			g.sentinelPassword = value
		default:
			err = fmt.Errorf("URL: unknown parameter %q: db, tls-ca, tls-cert, tls-key, wait, wait-timeout, sentinel-user and sentinel-password are known", name)
		}
		if err != nil {
			return err
		}
	}
	if g.mode != sentinel && (g.sentinelUsername != "" || g.sentinelPassword != "") {
		return errors.New("URL: sentinel-user and sentinel-password are for redis+sentinel://")
	}
	return g.loadTLS(caFile, certFile, keyFile)
}

// loadTLS reads the files that the parameters name.
func (g *config) loadTLS(caFile, certFile, keyFile string) error {
	if caFile == "" && certFile == "" && keyFile == "" {
		return nil
	}
	if g.tls == nil {
		return errors.New("URL: tls-ca, tls-cert and tls-key need TLS: begin the URL with rediss")
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return fmt.Errorf("URL: tls-ca: %w", err)
		}
		g.tls.RootCAs = x509.NewCertPool()
		if !g.tls.RootCAs.AppendCertsFromPEM(pem) {
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
		g.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}
