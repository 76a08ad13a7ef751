package etcdhold

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

// The client sends a ping after so much silence, and gives the connection up if the ping is not
// answered. etcd allows one ping every five seconds.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// address is a parsed URL.
type address struct {
	endpoints []string
	keyspace  string
	user      string
	password  string
	tls       *tls.Config // nil for none
}

// parameters are those that may follow '?'.
var parameters = []string{"keyspace", "password-file", "tls-ca", "tls-cert", "tls-key"}

// Validate reports whether [Open] takes the URL. It asks no server, and reads the files that the
// URL names. It fails with ErrInvalid.
func Validate(url string) error {
	_, err := parseURL(url)
	return err
}

// parseURL reads a URL. Any part of it may be a piece of a password, if a character was not escaped
// or the '@' was forgotten. So errors quote no part of it.
func parseURL(raw string) (*address, error) {
	a, err := parseParts(raw)
	if err != nil {
		return nil, &driver.Error{Invalid: true, Err: err}
	}
	return a, nil
}

func parseParts(raw string) (*address, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if !slices.Contains([]string{"etcd", "etcds", "etcd+unix"}, scheme) {
		return nil, errors.New("URL: must begin with etcd://, etcds:// (for TLS) or etcd+unix://")
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return nil, errors.New(
			"URL: has an '@' behind '/', '?' or '#': in user name, password, path and parameters escape these with %")
	}
	a := new(address)
	if scheme == "etcds" {
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("etcd://" + user + "host" + tail)
	if err != nil || u.Fragment != "" {
		return nil, errors.New(
			"URL: user name, password, path or parameters are not well formed: escape special characters with %")
	}
	if u.User != nil {
		a.user = u.User.Username()
		a.password, _ = u.User.Password()
	}
	if scheme == "etcd+unix" {
		err = a.setSocket(hosts, u.Path)
	} else {
		a.keyspace = keyspaceOf(u.Path)
		err = a.setHosts(hosts)
	}
	if err != nil {
		return nil, err
	}
	return a, a.setParameters(u.RawQuery)
}

func (a *address) setSocket(hosts, path string) error {
	if hosts != "" || path == "" {
		return errors.New("URL: etcd+unix:// needs the path of a socket, behind three slashes")
	}
	a.keyspace, a.endpoints = DefaultKeyspace, []string{"unix://" + path}
	return nil
}

func (a *address) setHosts(list string) error {
	for i, host := range strings.Split(list, ",") {
		name, port, ok := splitHost(host, "2379")
		if !ok {
			return fmt.Errorf("URL: host %d is not well formed: write host:port, or [IPv6]:port with "+
				"nothing but an IPv6 address in brackets", i+1)
		}
		if name == "" || port == "" {
			return fmt.Errorf("URL: host %d is empty, or its port", i+1)
		}
		if strings.ContainsFunc(name, unicode.IsSpace) {
			return fmt.Errorf("URL: host %d has a space in it", i+1)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("URL: host %d has a port that is not 1 to 65535; if it is a password, "+
				"an '@' is missing behind it", i+1)
		}
		scheme := "http"
		if a.tls != nil {
			scheme = "https"
		}
		// The client reads it as a URL. It would not know a '%' before a zone as one.
		endpoint := url.URL{Scheme: scheme, Host: net.JoinHostPort(name, port)}
		a.endpoints = append(a.endpoints, endpoint.String())
	}
	return nil
}

// splitHost takes host, host:port, [IPv6] or [IPv6]:port apart; port is that of a host without one.
// What is in brackets must be an IPv6 address. It may be a login without its '@', which must not be
// looked up as a host and be shown in the error about that.
func splitHost(s, port string) (host, itsPort string, ok bool) {
	host, rest := s, ""
	if inside, bracketed := strings.CutPrefix(s, "["); bracketed {
		host, rest, ok = strings.Cut(inside, "]")
		host = strings.Replace(host, "%25", "%", 1) // before a zone; URLs have it so
		ip, err := netip.ParseAddr(host)
		if !ok || err != nil || !ip.Is6() {
			return "", "", false
		}
	} else if i := strings.IndexAny(s, ":[]"); i >= 0 {
		host, rest = s[:i], s[i:]
	}
	if rest == "" {
		return host, port, true
	}
	port, ok = strings.CutPrefix(rest, ":")
	return host, port, ok && !strings.ContainsAny(port, ":[]")
}

func (a *address) setParameters(query string) error {
	values, err := readParameters(query)
	if err != nil {
		return err
	}
	if keyspace, ok := values["keyspace"]; ok {
		a.keyspace = keyspaceOf(keyspace)
	}
	if err := a.setLogin(values["password-file"]); err != nil {
		return err
	}
	return a.loadTLS(values["tls-ca"], values["tls-cert"], values["tls-key"])
}

// setLogin finds the rest of the login: in a file, or in the variables that etcdctl reads.
func (a *address) setLogin(file string) error {
	if a.user == "" {
		user, password, _ := strings.Cut(os.Getenv("ETCDCTL_USER"), ":")
		a.user = user
		if a.password == "" {
			a.password = password
		}
	}
	switch {
	case file != "" && a.password != "":
		return errors.New("URL: a password and password-file: one of them is too many")
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("URL: password-file: %w", err)
		}
		a.password = strings.TrimRight(string(text), "\r\n")
	case a.password == "" && a.user != "":
		a.password = os.Getenv("ETCDCTL_PASSWORD")
	}
	if a.user == "" && a.password != "" {
		return errors.New("URL: a password without a user: name it in the URL or in ETCDCTL_USER")
	}
	if a.user != "" && a.password == "" {
		return errors.New(
			"URL: a user without a password: name it in the URL, by password-file or in ETCDCTL_PASSWORD")
	}
	return nil
}

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
			return nil, fmt.Errorf(
				"URL: parameter %d is not well formed: escape special characters with %%", i)
		case !slices.Contains(parameters, name):
			return nil, fmt.Errorf(
				"URL: parameter %d is unknown, or the rest of a value in which an '&' has to be %%26: known are %s",
				i, strings.Join(parameters, ", "))
		case twice:
			return nil, fmt.Errorf("URL: parameter %q is given twice", name)
		}
		values[name] = value
	}
	return values, nil
}

// loadTLS reads the files that the parameters name.
func (a *address) loadTLS(caFile, certFile, keyFile string) error {
	if caFile == "" && certFile == "" && keyFile == "" {
		return nil
	}
	if a.tls == nil {
		return errors.New("URL: tls-ca, tls-cert and tls-key need TLS: begin the URL with etcds")
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

// Open returns a Backend on the servers that the URL names, after one of them has answered. ctx
// bounds that wait, not the Backend's life. Without a server Open takes [DefaultTimeout] at most
// for the login, and as long as [WithTimeout] says after that. The caller closes the Backend. The
// forms of a URL are
//
//	etcd://[user:password@]host[:port][,host[:port]...][/keyspace]
//	etcds://... for TLS
//	etcd+unix:///path/of/socket
//
// Parameters are, after '?' and separated by '&': keyspace, in place of the path; password-file,
// which has the password in its only line; tls-ca, tls-cert and tls-key, files with certificates
// and key in PEM form. If the URL has no user or no password, they come from ETCDCTL_USER (user, or
// user:password) and ETCDCTL_PASSWORD.
//
// Open fails with ErrInvalid if an option is not allowed or a part of the URL is wrong, which the
// error names. It fails with ErrUnavailable if no server can be reached or used. That is permanent
// for a refused login or certificate. No error contains a password.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	a, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("etcdhold: %w", err)
	}
	for tries := 1; ; tries++ {
		b, err := a.open(ctx, options)
		if err == nil || !isUnread(err) || tries == 20 || ctx.Err() != nil {
			return b, err
		}
	}
}

// isUnread reports whether the server may have said why it refuses, and gRPC has not read it,
// because it failed to write first. That happens when a server of TLS 1.3 wants a certificate: it
// says so after the client's handshake is done.
func isUnread(err error) bool { return strings.Contains(err.Error(), ": write: ") }

func (a *address) open(ctx context.Context, options []Option) (*Backend, error) {
	limited, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	client, err := a.connect(limited)
	if err != nil {
		return nil, fmt.Errorf("etcdhold: %w", err)
	}
	b, err := New(client, slices.Insert(slices.Clone(options), 0, WithKeyspace(a.keyspace))...)
	if err != nil {
		client.Close()
		return nil, err
	}
	b.owned = true
	if err := b.greet(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("etcdhold: %w", err)
	}
	return b, nil
}

// connect makes the client. A client with a login asks a server at once, for as long as the client
// lives, and does not tell why there is no server. So connect first asks with a client without a
// login, and ends the other with ctx.
func (a *address) connect(ctx context.Context) (*clientv3.Client, error) {
	if a.user != "" {
		if err := a.reach(ctx); err != nil {
			return nil, err
		}
	}
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(clientv3.Config{Endpoints: a.endpoints, TLS: a.tls,
		Username: a.user, Password: a.password, Context: life, Logger: zap.NewNop(),
		DialKeepAliveTime: pingAfter, DialKeepAliveTimeout: pingTimeout})
	if !stop() {
		if err == nil {
			client.Close()
		}
		return nil, cutOff(false, ctx.Err())
	}
	if err != nil {
		end()
		return nil, failure(err)
	}
	client.Auth = &logins{Auth: client.Auth}
	return client, nil
}

// reach finds out whether a server answers at all, whatever it answers to a client without a login.
func (a *address) reach(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: a.endpoints, TLS: a.tls,
		Logger: zap.NewNop()})
	if err != nil {
		return failure(err)
	}
	defer client.Close()
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx,
		new(pb.StatusRequest), grpc.WaitForReady(false))
	if why := ctx.Err(); err != nil && why != nil {
		return cutOff(false, why)
	}
	if status.Code(err) == codes.Unavailable {
		return failure(err)
	}
	return nil
}

// greet reads from the keyspace, as every call does.
func (b *Backend) greet(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	n := b.layout.names("greeting")
	if _, err := b.get(limited, n.holder(""), clientv3.WithCountOnly()); err != nil {
		return b.lookFailed(ctx, err)
	}
	return nil
}
