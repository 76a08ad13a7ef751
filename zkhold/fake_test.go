package zkhold

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A client that connects just before its server begins to serve does not wait for ever.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		dial := func(string, string, time.Duration) (net.Conn, error) {
			dials++ // by one goroutine
			client, server := net.Pipe()
			if dials == 1 {
				go io.Copy(io.Discard, server)
			} else {
				go serve(server, new(atomic.Int64))
			}
			return client, nil
		}
		start := time.Now()
		b, err := Open(t.Context(), "zookeeper://h", WithDialer(dial),
			WithTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("Open took %v", took)
		}
		// The client leaks a goroutine if it is closed just when it asks for something.
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// If a server ends just while a Backend is opened, Open does not fail.
func TestConnectionBreaksWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		dial := func(string, string, time.Duration) (net.Conn, error) {
			dials++ // by one goroutine
			client, server := net.Pipe()
			if dials > 2 {
				go serve(server, new(atomic.Int64))
				return client, nil
			}
			go func() {
				defer server.Close()
				if _, err := receive(server); err != nil || send(server, greet()) != nil {
					t.Error("the client wants no session")
				}
				receive(server)
			}()
			return client, nil
		}
		b, err := Open(t.Context(), "zookeeper://h", WithDialer(dial), WithTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if dials != 3 {
			t.Errorf("%d connections were made; want 3", dials)
		}
	})
}

// The time for which an answer is a proof counts from before its request.
func TestProofIsCountedFromTheRequest(t *testing.T) {
	const took = time.Second // the Backend asks for nothing by itself meanwhile
	for name, request := range map[string]func(*Backend) error{
		"prove": func(b *Backend) error { return b.prove() },
		"commit": func(b *Backend) error {
			id, _ := b.session.current()
			p := newPlan(&slot{path: "/s"}, "k", nil, b.names())
			_, err := b.commit(p, id)
			return err
		},
		"sync": func(b *Backend) error { return b.sync("/") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delay atomic.Int64
				dial := func(string, string, time.Duration) (net.Conn, error) {
					client, server := net.Pipe()
					go serve(server, &delay)
					return client, nil
				}
				b, err := Open(t.Context(), "zookeeper://h", WithDialer(dial))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(took / 10)
				synctest.Wait() // for what it has asked in the background
				begun := driver.LeaseClock()
				delay.Store(int64(took))
				if err := request(b); err != nil {
					t.Fatal(err)
				}
				delay.Store(0)
				id, timeout := b.session.current()
				b.session.mu.Lock()
				last := b.session.last
				b.session.mu.Unlock()
				if last != begun {
					t.Errorf("it counts from %v after the request", last-begun)
				}
				end := begun + share(timeout)
				_, whole := b.session.lasts(id, end)
				_, more := b.session.lasts(id, end+1)
				if whole != (name != "sync") || more {
					t.Errorf("the session lasts for three quarters: %v, and longer: %v", whole, more)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The operations that the server knows.
const (
	opExists = 3
	opGet    = 4
	opSet    = 5
	opSync   = 9
	opMulti  = 14
)

// serve plays a server that grants a session, has no node to read, and does what it is told after a
// delay. All nodes that it is asked about are of that session.
func serve(conn net.Conn, delay *atomic.Int64) {
	defer conn.Close()
	for first := true; ; first = false {
		request, err := receive(conn)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(delay.Load()))
		reply := greet()
		if !first {
			reply = answerTo(request)
		}
		if send(conn, reply) != nil {
			return
		}
	}
}

// receive and send pass on frames, which have their length in front.
func receive(conn net.Conn) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(conn, frame)
	return frame, err
}

func send(conn net.Conn, frame []byte) error {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

// servedSession is the session that the server grants.
const servedSession = 7

// greet has a version, the timeout in milliseconds, the session, and its password.
func greet() (b []byte) {
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, 40_000)
	b = binary.BigEndian.AppendUint64(b, servedSession)
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16)...)
}

// answerTo has the request's number, what has changed last, an error, and what the operation gives.
func answerTo(request []byte) []byte {
	b := append([]byte(nil), request[:4]...)
	b = binary.BigEndian.AppendUint64(b, 1)
	code, body := int32(0), []byte(nil)
	switch binary.BigEndian.Uint32(request[4:]) {
	case opExists:
		body = make([]byte, 68)
		binary.BigEndian.PutUint64(body[44:], servedSession) // what an ephemeral node belongs to
	case opGet:
		code = -101 // no node
	case opSet:
		body = make([]byte, 68)
	case opSync:
		body = make([]byte, 4) // no path
	case opMulti:
		body = []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff} // no more results
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), body...)
}
