package sqltest_test

import (
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// benchmarkHTTP has a client and a service on this machine, and each request on a connection that
// is there. The service writes to memory, or to PostgreSQL in the transaction of its guard.
func benchmarkHTTP(b *testing.B) {
	const store = "HTTP"
	var memory [2]atomic.Int64
	inMemory := func(which int) (http.Handler, func() (int, error)) {
		return storing(func(_ *http.Request, i int) error {
			memory[which].Store(int64(i))
			return nil
		}), func() (int, error) { return int(memory[which].Load()), nil }
	}
	plain, read := inMemory(0)
	next, readNext := inMemory(1)
	compare(b, store, "`Handler` over `Register`", "request that writes to memory",
		side{putting(b, plain, false), read},
		side{putting(b, httpfence.Handler{Guard: new(fence.Register), Next: next}, true), readNext})

	db := onPostgres.connect(b)
	onPostgres.createBenchmarked(b, db)
	update := func(r *http.Request, tx *sql.Tx, table string, i int) error {
		_, err := tx.ExecContext(r.Context(), "UPDATE "+table+" SET value = $1 WHERE id = 7", i)
		return err
	}
	plain = storing(func(r *http.Request, i int) error {
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := update(r, tx, "bare", i); err != nil {
			return err
		}
		return tx.Commit()
	})
	next = storing(func(r *http.Request, i int) error {
		return update(r, sqlfence.Tx(r.Context()), "things", i)
	})
	guard := sqlfence.Table{Dialect: onPostgres.dialect}.Guard(db)
	compare(b, store, "`Handler` over `Table` on PostgreSQL", "request with a transaction",
		in(db, "bare", putting(b, plain, false)),
		in(db, "things", putting(b, httpfence.Handler{Guard: guard, Next: next}, true)))
}

// storing is a service that stores the number in the body of a request.
func storing(store func(r *http.Request, i int) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		i, notANumber := strconv.Atoi(string(text))
		if err := errors.Join(err, notANumber); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if err := store(r, i); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// putting starts the service, and returns what sends it a number: with a token if it is guarded,
// and else as a client without tokens does.
func putting(b *testing.B, service http.Handler, guarded bool) func(i int) error {
	server := httptest.NewServer(service)
	b.Cleanup(server.Close)
	client, check := server.Client(), func(*http.Response) error { return nil }
	if guarded {
		client.Transport = httpfence.Transport{Base: client.Transport}
		check = httpfence.Check
	}
	return func(i int) error {
		ctx := b.Context()
		if guarded {
			ctx = httpfence.WithToken(ctx, nextToken())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/r",
			strings.NewReader(strconv.Itoa(i)))
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if err := check(response); err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body) // to the end, so that the connection is used again
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status + ": " + string(text))
		}
		return err
	}
}
