package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/board"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
)

// boardFlags are the flags of holdfast board.
type boardFlags struct {
	lookFlags
	listen    string
	every     time.Duration
	release   bool
	tokenFile string
	hosts     []string
}

func newBoard(s streams) *cobra.Command {
	var f boardFlags
	cmd := &cobra.Command{
		Use:   "board [flags] [PREFIX]",
		Short: "Show the locks live in a browser",
		Long: `Board shows the locks whose names begin with PREFIX on a page in a browser: who holds
what, for how long, and how many wait; who had what since the page was opened; who
waits for whom, with deadlocks in red; the servers of a set; and what holdfast
doctor finds. It prints the address of the page and serves it until a signal ends
it. The page is part of this program and loads nothing from anywhere else.

One reader looks at the backend for all pages, and only while a page is open. Up to
10000 locks are shown. Each look asks for all of them; on Redis it asks for all keys
of the server, in small steps. With very many keys, set --every higher. When the
server does not answer, the page says so and how old the rest is, and board goes on
asking.

Board changes nothing, and the user needs the rights that ls and doctor need. With
--allow-release the page can also free a lock, as holdfast release does: only while
the acquisition that was shown still holds it. Then the user needs the rights that
locks need, and whoever looks needs a token. Board makes up a token and prints it as
a part of the address, or reads the one in --token-file. Stderr says what was freed.

Without a token, every user of this machine can look. So --listen takes an address
that is not a loopback address only with a token. Nothing that is sent is encrypted:
from another machine, use ssh -L 8420:127.0.0.1:8420, or put a server that speaks
TLS in front. Browsers must call the board by an IP address, by localhost, or by a
name of --host. Addresses: holdfast help addresses.

Exit codes:
  64     the command line is wrong, or the backend cannot show its locks
  69     the backend could not be used at the start
  71     it cannot listen there, or the system has no files, processes or memory left
  74     the address cannot be written
  128+N  signal N has ended it`,
		Example: `  holdfast board
  holdfast board --on redis://looks:secret@locks.example.com report/
  holdfast board --allow-release --listen 127.0.0.1:9000`,
		Args: onePrefix("board"),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := f.check()
			if err != nil {
				return err
			}
			v, err := f.open(cmd.Flags().Changed, s, true, f.release)
			if err != nil {
				return err
			}
			defer v.close()
			return f.serve(v, s, strings.Join(args, ""), token)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8420",
		"serve the page on this `host:port`; port 0 is any that is free")
	flags.DurationVar(&f.every, "every", 2*time.Second, "look again after so long")
	flags.BoolVar(&f.release, "allow-release", false, "free locks by the page; needs a token")
	flags.StringVar(&f.tokenFile, "token-file", "",
		"who looks needs the token in this `file`, of 16 characters or more")
	flags.StringSliceVar(&f.hosts, "host", nil,
		"`name` by which browsers call the board; may be repeated")
	_ = cmd.MarkFlagFilename("token-file") // the flag is there
	return cmd
}

// check checks the flags, and returns the token; empty if there is none.
func (f *boardFlags) check() (token string, err error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	bad := slices.IndexFunc(f.hosts, notName)
	switch {
	case f.every < shortestEvery:
		return "", usagef("--every %v: must be at least %v", f.every, shortestEvery)
	case err != nil:
		return "", usagef("--listen %.60s: must be host:port, such as 127.0.0.1:8420",
			shown([]string{f.listen}))
	case bad >= 0:
		return "", usagef("--host %.60q: must be a name alone, such as locks.example.com",
			shown(f.hosts[bad:bad+1]))
	case f.tokenFile != "":
		return tokenIn(f.tokenFile)
	case f.release:
		return rand.Text(), nil
	case !isHere(host):
		return "", usagef("--listen %s: others can reach that; say with --token-file which token "+
			"they need", shown([]string{f.listen}))
	}
	return "", nil
}

// notName reports whether no browser calls a board so: Host has a port behind the name, and never a
// scheme, a path or a character that is not ASCII.
func notName(host string) bool {
	return host == "" || strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("-._", r)
	})
}

// isHere reports whether only this machine reaches the host.
func isHere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

const (
	shortestToken = 16
	longestToken  = 1024
)

// tokenIn reads a token from a file. Its errors do not show it.
func tokenIn(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(token) < shortestToken || len(token) > longestToken:
		return "", usagef("--token-file %s: has a token of %d bytes; it must have %d to %d", path,
			len(token), shortestToken, longestToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", usagef("--token-file %s: the token must be one word of ASCII", path)
	}
	return token, nil
}

// serve serves the page until a signal comes.
func (f *boardFlags) serve(v *viewer, s streams, begins, token string) error {
	signals, stop := child.Signals()
	defer stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return &exit{codeSystem, err}
	}
	defer listener.Close()
	address := pageAddress(listener.Addr(), token, f.tokenFile == "")
	printed := make(chan error, 1)
	go func() { // a reader that blocks must not delay the end
		_, err := fmt.Fprintln(s.out, address)
		printed <- err
	}()
	select {
	case err := <-printed:
		if err != nil {
			return &exit{codeOutput, err}
		}
	case <-ctx.Done():
		return signalled(ctx)
	}
	say := newMessages(s.err)
	defer say.flush()
	hosts := slices.Clone(f.hosts)
	for i := range hosts {
		hosts[i] = strings.ToLower(hosts[i])
	}
	err = board.New(board.Options{
		View: &v.View, Backend: v.backend, Title: strings.TrimSuffix(v.name, ": "), Begins: begins,
		Every: f.every, Token: token, Release: f.release, Hosts: hosts, Hide: hidden,
		Log: say.printf,
	}).Serve(ctx, listener)
	if signalled := signalled(ctx); signalled != nil {
		return signalled
	}
	if err != nil {
		return &exit{codeSystem, err}
	}
	return nil
}

// pageAddress is where a browser of this machine finds the page. The token is behind the #, which
// no browser sends to a server.
func pageAddress(at net.Addr, token string, show bool) string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String() // no TCP; not so
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	address := "http://" + net.JoinHostPort(host, port) + "/"
	if token != "" && show {
		address += "#token=" + token
	}
	return address
}
