package withgoose_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withgoose "github.com/holdfast-go/holdfast/with/goose"
)

func Example() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // SQLite in memory
	files := fstest.MapFS{"001_accounts.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE accounts (id int, balance int);\n")}}

	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	migrations, err := withgoose.New(locker, "migrations")
	if err != nil {
		log.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithLocker(migrations))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := migrations.Context(context.Background()) // ends when the lock is lost
	defer cancel()
	results, err := provider.Up(ctx)
	fmt.Println(len(results), "migration applied:", err)
	// Output: 1 migration applied: <nil>
}
