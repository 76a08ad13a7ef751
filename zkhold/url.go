package zkhold

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// address is a parsed URL.
type address struct {
	servers []string
	root    string
	session time.Duration // 0 if it is not named
	login   string        // user:password; empty for none
	tls     *tls.Config   // nil for none
}

// parameters are those that may follow '?'.
var parameters = []string{"session", "password-file", "tls-ca", "tls-cert", "tls-key"}

// Validate reports whether [Open] takes the URL. It asks no server, and reads the file that the URL
// names. It fails with ErrInvalid.
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
	a := &address{root: DefaultRoot}
	switch scheme {
	case "zookeeper":
	case "zookeepers":
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, errors.New("URL: must begin with zookeeper:// or zookeepers:// (for TLS)")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(tail, "@") {
		return nil, errors.New(
			"URL: has an '@' behind '/', '?' or '#': in user name, password, path and parameters escape these with %")
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("zookeeper://" + user + "host" + tail)
	if err != nil || u.Fragment != "" {
		return nil, errors.New(
			"URL: user name, password, path or parameters are not well formed: escape special characters with %")
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		a.root = "/" + path
	}
	if err := WithRoot(a.root).apply(new(Backend)); err != nil {
		return nil, errors.New("URL: the path must have names in plain ASCII, and neither . nor .. in it")
	}
	if err := a.setServers(hosts); err != nil {
		return nil, err
	}
	values, err := readParameters(u.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := a.setSession(values["session"]); err != nil {
		return nil, err
	}
	if err := a.setLogin(u.User, values["password-file"]); err != nil {
		return nil, err
	}
	return a, a.loadTLS(values["tls-ca"], values["tls-cert"], values["tls-key"])
}

func (a *address) setServers(list string) error {
	for i, host := range strings.Split(list, ",") {
		name, port, ok := splitHost(host, fmt.Sprint(zk.DefaultPort))
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
		a.servers = append(a.servers, net.JoinHostPort(name, port))
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

func (a *address) setSession(text string) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || WithSession(d).apply(new(Backend)) != nil {
		return fmt.Errorf("URL: session: must be a time such as 40s, from %v to %v", MinSession,
			driver.MaxTTL)
	}
	a.session = d
	return nil
}

func (a *address) setLogin(user *url.Userinfo, file string) error {
	if user == nil {
		if file != "" {
			return errors.New("URL: password-file without a user")
		}
		return nil
	}
	password, _ := user.Password()
	switch {
	case file != "" && password != "":
		return errors.New("URL: a password and password-file: one of them is too many")
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("URL: password-file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	if user.Username() == "" || password == "" || strings.Contains(user.Username(), ":") {
		return errors.New(
			"URL: a user without a name or a password: name it in the URL, or by password-file")
	}
	a.login = user.Username() + ":" + password
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

// Open returns a Backend on the servers that the URL names, with a session of its own. ctx bounds
// the opening, not the Backend's life. Without a server Open takes at most as long as [WithTimeout]
// says. The caller closes the Backend. The form of a URL is
//
//	zookeeper://[user:password@]host[:port][,host[:port]...][/root]
//	zookeepers://... for TLS, with the port that servers have for it (secureClientPort)
//
// Parameters are, after '?' and separated by '&': session, the timeout of the session, as
// [WithSession] has it; password-file, which has the password in its only line; and tls-ca,
// tls-cert and tls-key, files with certificates and key in PEM form. With a user, the nodes that
// the Backend makes are for that user alone, by the scheme digest of ZooKeeper. Without one they
// are for everybody.
//
// It fails with ErrInvalid if a part of the URL is wrong, which the error names, or an option. It
// fails with ErrUnavailable if no server can be reached or used, which is permanent if the user may
// not use the root, or if a certificate is refused before any server has answered. No error holds a
// password.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	a, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("zkhold: %w", err)
	}
	b := &Backend{servers: a.servers, root: a.root, slots: slots, wanted: DefaultSession,
		presence: DefaultPresence, timeout: DefaultTimeout, dialer: net.DialTimeout,
		acl: zk.WorldACL(zk.PermAll), claims: make(map[identity]*claim),
		session: session{known: make(chan struct{}), distrust: make(chan error, 1),
			unsure: make(map[string]int)},
		instance: strings.ToLower(rand.Text())}
	if a.session > 0 {
		b.wanted = a.session
	}
	if a.login != "" {
		b.acl = zk.AuthACL(zk.PermAll)
	}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		if err := o.apply(b); err != nil {
			return nil, err
		}
	}
	if a.tls != nil {
		b.dialer = encrypted(b.dialer, a.tls)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.client, _, err = zk.Connect(a.servers, b.wanted, zk.WithDialer(b.dial),
		zk.WithHostProvider(new(hosts)), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		b.cancel()
		return nil, fmt.Errorf("zkhold: %w", readFailed(err))
	}
	if err := b.greet(ctx, a.login); err != nil {
		b.Close()
		return nil, fmt.Errorf("zkhold: %w", err)
	}
	b.spawn(b.keep)
	return b, nil
}

// greet waits for a session, and reads what every call reads. It writes nothing.
func (b *Backend) greet(ctx context.Context, login string) error {
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	select {
	case <-b.session.known:
	case why := <-b.session.distrust:
		return &driver.Error{Permanent: true, Err: why}
	case <-limited.Done():
		return b.session.unanswered(limited.Err())
	}
	var err error
	if ended := b.await(limited, func() { err = b.firstRead(limited, login) }); ended != nil {
		return b.session.unanswered(limited.Err())
	}
	if err != nil {
		return readFailed(err)
	}
	return nil
}

// firstRead reads the node that has the slots, if it is there; the first claim makes it. If a
// connection breaks, firstRead tries again until ctx ends, because connections to a server that is
// about to end break.
func (b *Backend) firstRead(ctx context.Context, login string) error {
	for {
		var err error
		if login != "" {
			if err = b.client.AddAuth("digest", []byte(login)); err == nil {
				login = "" // the client sends it by itself from now on
			}
		}
		if err == nil {
			_, _, err = b.client.Get(b.slotsPath())
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return nil
		case isOneOf(err, unhelpful), ctx.Err() != nil:
			return err
		}
		rest := time.NewTimer(10 * time.Millisecond)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// silent drops what the client would log, because each call tells what fails.
type silent struct{}

func (silent) Printf(string, ...any) {}

// hosts are the servers to try, one after the other. The client's own list counts the first attempt
// after a connection was lost as a failed round. Requests that were made just then would fail.
type hosts struct {
	mu    sync.Mutex
	all   []string
	next  int
	tried int // since the last connection
}

func (h *hosts) Init(servers []string) error {
	h.all = servers
	return nil
}

func (h *hosts) Len() int { return len(h.all) }

func (h *hosts) Next() (server string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	again = h.tried > 0 && h.tried%len(h.all) == 0
	h.tried++
	server = h.all[h.next%len(h.all)]
	h.next++
	return server, again
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}
