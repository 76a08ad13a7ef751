package withmigrate_test

import (
	"fmt"
	"log"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withmigrate "github.com/holdfast-go/holdfast/with/migrate"
)

func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	files, err := iofs.New(fstest.MapFS{"001_accounts.up.sql": {Data: []byte(
		"CREATE TABLE accounts (id int, balance int);")}}, ".")
	if err != nil {
		log.Fatal(err)
	}
	driver, err := stub.WithInstance(nil, &stub.Config{}) // in a program: postgres.WithInstance
	if err != nil {
		log.Fatal(err)
	}
	driver, err = withmigrate.New(locker, "migrations", driver)
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", files, "stub", driver)
	if err != nil {
		log.Fatal(err)
	}
	err = m.Up()
	version, dirty, _ := m.Version()
	fmt.Println("version", version, "dirty:", dirty, "error:", err)
	// Output: version 1 dirty: false error: <nil>
}
