package stores

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// Paths of the service. GET reads, POST reads through the guard, PUT writes.
const guardedPath, twinPath = "/guarded/", "/twin/"

// behind are the counters of the service: a guard table on PostgreSQL.
func behind(at job.Stores) (counters, error) {
	db, err := sql.Open("pgx", at.Postgres)
	return counters{db, sqlfence.Postgres, "service"}, err
}

// handler is the service.
func handler(c counters, failed func(error)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(guardedPath+"{key}", httpfence.Handler{
		Guard:  c.table().Guard(c.db),
		Next:   c.serve(c.guarded(), sqlfence.Tx),
		Failed: func(_ *http.Request, err error) { failed(err) },
	})
	mux.Handle(twinPath+"{key}", c.serve(c.twins(), func(context.Context) *sql.Tx { return nil }))
	return mux
}

// serve serves the counters of a table, in the transaction of the guard, if there is one.
func (c counters) serve(table string, transaction func(context.Context) *sql.Tx) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var db sqlfence.Queryer = c.db
		if tx := transaction(r.Context()); tx != nil {
			db = tx
		}
		var value uint64
		var err error
		if r.Method == http.MethodPut {
			if value, err = read(r.Body); err == nil {
				err = c.set(r.Context(), db, table, r.PathValue("key"), value)
			}
		} else {
			value, err = c.value(r.Context(), db, table, r.PathValue("key"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, value)
	})
}

func read(body io.Reader) (uint64, error) {
	all, err := io.ReadAll(body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(all), 10, 64)
}

// service is a client of the service.
type service struct {
	at     job.Stores
	client *http.Client
	base   *http.Transport
}

func openHTTP(at job.Stores) (Store, error) {
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", at.HTTP)
	}}
	return service{at, &http.Client{Transport: httpfence.Transport{Base: base}}, base}, nil
}

// Create makes what is behind the service.
func (s service) Create(ctx context.Context, keys []string) error {
	c, err := behind(s.at)
	if err != nil {
		return err
	}
	defer c.db.Close()
	return sqlStore{c, table}.Create(ctx, keys)
}

func (s service) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	return s.do(httpfence.WithToken(ctx, token), http.MethodPost, guardedPath+key, "")
}

func (s service) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	_, err := s.do(httpfence.WithToken(ctx, token), http.MethodPut, guardedPath+key, text(value))
	return err
}

func (s service) Get(ctx context.Context, key string) (uint64, error) {
	return s.do(ctx, http.MethodGet, guardedPath+key, "")
}

func (s service) Twin(ctx context.Context, key string) (uint64, error) {
	return s.do(ctx, http.MethodGet, twinPath+key, "")
}

func (s service) SetTwin(ctx context.Context, key string, value uint64) error {
	_, err := s.do(ctx, http.MethodPut, twinPath+key, text(value))
	return err
}

func (s service) do(ctx context.Context, method, path, body string) (uint64, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://service"+path,
		strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if err := httpfence.Check(response); err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		words, _ := io.ReadAll(response.Body)
		return 0, fmt.Errorf("%s: %s", response.Status, words)
	}
	return read(response.Body)
}

func (s service) Close() error {
	s.base.CloseIdleConnections()
	return nil
}
