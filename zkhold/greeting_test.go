package zkhold_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/zkhold"
)

// Who came a moment too early for a server that was about to serve does not wait for it for ever.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		dial := func(string, string, time.Duration) (net.Conn, error) {
			dials++ // by one goroutine
			client, server := net.Pipe()
			if dials == 1 {
				go io.Copy(io.Discard, server)
			} else {
				go serveNothing(server)
			}
			return client, nil
		}
		start := time.Now()
		b, err := zkhold.Open(t.Context(), "zookeeper://h", zkhold.WithDialer(dial),
			zkhold.WithTimeout(time.Hour))
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

// serveNothing plays a server that grants a session and has no node.
func serveNothing(conn net.Conn) {
	defer conn.Close()
	for first := true; ; first = false {
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		var answer []byte
		if first { // a version, the timeout in milliseconds, the session, and its password
			answer = binary.BigEndian.AppendUint32(answer, 0)
			answer = binary.BigEndian.AppendUint32(answer, 40_000)
			answer = binary.BigEndian.AppendUint64(answer, 7)
			answer = binary.BigEndian.AppendUint32(answer, 16)
			answer = append(answer, make([]byte, 16)...)
		} else { // the request's number, what has changed last, and that there is no node
			noNode := int32(-101)
			answer = append(answer, request[:4]...)
			answer = binary.BigEndian.AppendUint64(answer, 1)
			answer = binary.BigEndian.AppendUint32(answer, uint32(noNode))
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(answer)))
		if _, err := conn.Write(append(frame, answer...)); err != nil {
			return
		}
	}
}
