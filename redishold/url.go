package redishold

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/redishold/internal/hosts"
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

// parse reads a URL. If a character was not escaped or the '@' was forgotten, any part of it may be
// a piece of a password. So errors quote only values of known parameters that are not secret, and
// name hosts and parameters by number.
func (g *config) parse(raw string) error {
	// A password with a '/', '?' or '#' in it seems to end there, and the rest of it up to the '@'
	// would be taken for the path or a parameter.
	_, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return errors.New(
			"URL: has an '@' behind '/', '?' or '#': in user name, password, path and parameters escape these with %")
	}
	return g.parseParts(raw)
}

func (g *config) parseParts(raw string) error {
	name, rest, ok := strings.Cut(raw, "://")
	scheme, known := schemes[name]
	if !ok || !known {
		return errors.New(
			"URL: must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster:// (or rediss+ for TLS)")
	}
	g.mode, g.unix = scheme.mode, scheme.unix
	if scheme.tls {
		g.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	// Apart from the list of hosts it is an ordinary URL.
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, list := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("redis://" + user + "host" + tail)
	if err != nil {
		return errors.New(
			"URL: user name, password, path or parameters are not well formed: escape special characters with %")
	}
	if u.Fragment != "" {
		return errors.New(
			"URL: has a fragment after '#', which means nothing here: escape the character with %23")
	}
	if u.User != nil {
		g.username = u.User.Username()
		g.password, _ = u.User.Password()
	}
	if err := g.setHosts(list); err != nil {
		return err
	}
	if err := g.setPath(u.Path); err != nil {
		return err
	}
	return g.setParameters(u.RawQuery)
}

func (g *config) setHosts(list string) error {
	if g.unix {
		if list != "" {
			return errors.New(
				"URL: a host before the path of a socket: three slashes are needed, or an '@' behind the login")
		}
		return nil
	}
	port := "6379"
	if g.mode == sentinel {
		port = "26379"
	}
	if n := strings.Count(list, ",") + 1; g.mode == standalone && n != 1 {
		return fmt.Errorf(
			"URL: %d hosts for one server: use redis+cluster:// or redis+sentinel://, or redlock:// for independent servers",
			n)
	}
	var err error
	if g.addresses, err = hosts.Parse(list, port); err != nil {
		return fmt.Errorf("URL: %w", err)
	}
	return nil
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
		return errors.New("URL: the database must be a number, 0 or more")
	}
	if n != 0 && g.mode == cluster {
		return errors.New("URL: a cluster has only database 0")
	}
	g.database = int(n)
	return nil
}

// parameters are those that may follow '?'.
var parameters = []string{"db", "tls-ca", "tls-cert", "tls-key", "wait", "wait-timeout", "durable",
	"sentinel-user", "sentinel-password"}

// readParameters reads what follows '?'. Each parameter may be given once.
func readParameters(query string) (map[string]string, error) {
	values := make(map[string]string)
	i := 0
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		i++
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(rawName)
		value, err2 := url.QueryUnescape(rawValue)
		switch _, twice := values[name]; {
		case err1 != nil || err2 != nil || strings.Contains(pair, ";"):
			return nil,
				fmt.Errorf(
					"URL: parameter %d is not well formed: escape special characters with %%", i)
		case !slices.Contains(parameters, name):
			return nil,
				fmt.Errorf(
					"URL: parameter %d is unknown, or the rest of a value in which an '&' has to be %%26: known are %s",
					i, strings.Join(parameters, ", "))
		case twice:
			return nil, fmt.Errorf("URL: parameter %q is given twice", name)
		}
		values[name] = value
	}
	return values, nil
}

func (g *config) setParameters(query string) error {
	values, err := readParameters(query)
	if err != nil {
		return err
	}
	if err := g.setDatabase(values["db"]); err != nil {
		return err
	}
	if value, ok := values["wait"]; ok {
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			return fmt.Errorf("URL: wait %q: must be the number of replicas to wait for, 0 to 255",
				value)
		}
		g.options.Replicas = int(n)
	}
	if value, ok := values["wait-timeout"]; ok {
		g.options.ReplicaTimeout, err = time.ParseDuration(value)
		if err != nil || g.options.ReplicaTimeout < time.Millisecond ||
			g.options.ReplicaTimeout > time.Second {
			return fmt.Errorf("URL: wait-timeout %q: must be a duration of 1ms to 1s", value)
		}
	}
	if value, ok := values["durable"]; ok {
		if value != "always" || g.mode != standalone {
			return fmt.Errorf("URL: durable %q: must be always, and only for a lone server", value)
		}
		g.options.Durable = true
	}
	g.sentinelUsername, g.sentinelPassword = values["sentinel-user"], values["sentinel-password"]
	if g.mode != sentinel && (g.sentinelUsername != "" || g.sentinelPassword != "") {
		return errors.New("URL: sentinel-user and sentinel-password are for redis+sentinel://")
	}
	return g.loadTLS(values["tls-ca"], values["tls-cert"], values["tls-key"])
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
