package redishold_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// splitter is a proxy that passes requests on command by command, and calls before in front of
// each.
type splitter struct {
	net.Listener
	target string
	before func(command []string)
}

func newSplitter(t *testing.T, s *redistest.Server, before func(command []string)) *splitter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &splitter{Listener: l, target: s.Addr, before: before}
	go p.serve()
	return p
}

func (p *splitter) url() string { return "redis://" + p.Addr().String() }

func (p *splitter) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		go func() {
			defer client.Close()
			io.Copy(client, server)
		}()
		go func() {
			defer server.Close()
			r := bufio.NewReader(client)
			for {
				raw, command, err := splitCommand(r)
				if err != nil {
					return
				}
				p.before(command)
				if _, err := server.Write(raw); err != nil {
					return
				}
			}
		}()
	}
}

// splitCommand reads one command, and returns it as it was sent as well.
func splitCommand(r *bufio.Reader) (raw []byte, command []string, err error) {
	line := func() (n int) {
		text, e := r.ReadString('\n')
		raw = append(raw, text...)
		if err = e; err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(text[1:]))
		}
		return n
	}
	for left := line(); left > 0 && err == nil; left-- {
		size := line()
		if err != nil {
			break
		}
		argument := make([]byte, size+2)
		_, err = io.ReadFull(r, argument)
		raw = append(raw, argument...)
		command = append(command, string(argument[:size]))
	}
	return raw, command, err
}

// The commands that take a free key are not one step. If the key is removed between any two of
// them, by hand, by eviction or by a clock, and another owner takes it, tokens that were drawn
// after that are not a grant (R7, R38).
func TestR38_KeyRemovedBetweenPlainCommands(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"EXISTS", "ZADD", "GETRANGE"} {
		t.Run("before "+at, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			first, second := newClaim("k"), newClaim("k")
			first.Token, second.Token = 5000, 1000 // clocks that do not agree
			other := open(t, server.URL())
			done := make(chan driver.Result, 1)
			var struck atomic.Bool // commands come over several connections at once
			a := open(t, newSplitter(t, server, func(command []string) {
				if command[0] != at || server.String(t, "GET", "k") != first.Owner ||
					struck.Swap(true) {
					return
				}
				server.Do(t, "DEL", "k")
				done <- granted(t, other, second)
			}).url())
			r, err := a.Acquire(t.Context(), first)
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatalf("nobody came between: no %s was sent while the key was set", at)
			}
			if err != nil || r.State != driver.Busy || r.Holder != second.Owner {
				t.Errorf("Acquire = %+v, %v; want busy: the key was another's when it ended",
					r, err)
			}
		})
	}
}
