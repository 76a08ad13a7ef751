//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package role

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

func init() {
	// takes the locks and permits whose names it reads, one after the other, and keeps them until
	// its stdin ends; a plus before a name asks for one
	// of two permits
	roles["taker"] = func() {
		ctx, cancel := context.WithCancel(context.Background())
		at, err := backendurl.Parse(os.Getenv("HOLDFAST_URL"))
		check(err)
		backend, err := at.Open(ctx, nil)
		check(err)
		locker, err := holdfast.New(backend, holdfast.WithPrefix(at.Prefix()),
			holdfast.WithTTL(time.Hour), holdfast.WithLabel(os.Getenv("LABEL")))
		check(err)
		names, done := make(chan string, 16), make(chan struct{})
		go func() {
			defer close(done)
			for name := range names {
				var options []holdfast.AcquireOption
				if name[0] == '+' {
					name, options = name[1:], []holdfast.AcquireOption{holdfast.WithPermits(2)}
				}
				if _, err := locker.Acquire(ctx, name, options...); err != nil {
					return
				}
				fmt.Println("has", name)
			}
		}()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			names <- lines.Text()
		}
		cancel()
		close(names)
		<-done
		_ = locker.Close()
		_ = backend.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
