package pghold

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/driver"
)

// greeted is the process of the server that greets each connection.
const greeted = 7

// serve is a server of one connection, and tells when somebody logs in. It answers each statement
// with one number, or breaks the connection if that is 0.
func serve(conn net.Conn, number uint32, logins chan<- time.Time) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	message, err := b.ReceiveStartupMessage()
	if _, login := message.(*pgproto3.StartupMessage); err != nil || !login {
		return // pgx asks for an end of what has broken
	}
	logins <- time.Now()
	b.Send(new(pgproto3.AuthenticationOk))
	b.Send(&pgproto3.BackendKeyData{ProcessID: greeted})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		message, err := b.Receive()
		if err != nil {
			return
		}
		if _, end := message.(*pgproto3.Sync); !end {
			continue
		}
		if number == 0 {
			return
		}
		const int8 = 20
		b.Send(new(pgproto3.ParseComplete))
		b.Send(new(pgproto3.BindComplete))
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{
			Name: []byte("n"), DataTypeOID: int8, DataTypeSize: 8}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{fmt.Append(nil, number)}})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

// After a failure, listening is tried again soon. Only a pooler is looked at again after a long
// time, because it does not go away.
func TestListeningIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		process uint32 // that serves the connection
		pause   time.Duration
	}{
		"a connection that breaks": {0, listenPause},
		"a pooler":                 {greeted + 1, pooledPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config, err := pgx.ParseConfig("postgres://u@127.0.0.1/db?sslmode=disable")
				if err != nil {
					t.Fatal(err)
				}
				logins := make(chan time.Time, 100)
				config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go serve(server, c.process, logins)
					return client, nil
				}
				b := new(Backend)
				b.config.notices = config
				b.life, b.end = context.WithCancel(t.Context())
				defer b.Notify(func(driver.Notice) {})()
				b.channel.prepare(t.Context(), b)
				time.Sleep(2*c.pause + c.pause/2)
				b.end()
				b.channel.stop()
				close(logins)
				var pauses []time.Duration
				for last := <-logins; len(logins) > 0; {
					next := <-logins
					pauses, last = append(pauses, next.Sub(last)), next
				}
				if want := []time.Duration{c.pause, c.pause}; !slices.Equal(pauses, want) {
					t.Errorf("pauses between attempts are %v; want %v", pauses, want)
				}
			})
		})
	}
}
