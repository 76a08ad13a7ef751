package withcertmagic_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withcertmagic "github.com/holdfast-go/holdfast/with/certmagic"
)

func Example() {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithPrefix("certmagic/"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	storage, err := withcertmagic.New(locker, &certmagic.FileStorage{Path: dir})
	if err != nil {
		log.Fatal(err)
	}
	certmagic.Default.Storage = storage // and then certmagic.HTTPS, for example

	// What certmagic does:
	ctx := context.Background()
	if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	ok, err := storage.TryLock(ctx, "issue_cert_example.com")
	fmt.Println("locked again:", ok, err)
	fmt.Println("unlocked:", storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// locked again: false <nil>
	// unlocked: <nil>
}
