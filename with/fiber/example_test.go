package withfiber_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withfiber "github.com/holdfast-go/holdfast/with/fiber"
)

// pay is the handler of a process. A client may leave out the header: then the middleware passes
// the request on without a lock, and there is none to be had.
func pay(name string, locks *withfiber.Locker) fiber.Handler {
	return func(c fiber.Ctx) error {
		lock := locks.Held(c.Get("X-Idempotency-Key"))
		if lock == nil {
			return fiber.NewError(http.StatusBadRequest, "X-Idempotency-Key is missing")
		}
		ctx := lock.Context(c.Context()) // ends with the lock
		return c.SendString(fmt.Sprint(name, " pays; it still has the lock: ", ctx.Err() == nil,
			", with a token: ", lock.Token() > 0))
	}
}

// Two processes get the same request, and one of them pays.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	responses := &storage{} // for several machines: one of gofiber/storage

	for _, name := range []string{"first", "second"} {
		locker, err := holdfast.New(backend, holdfast.WithPrefix("idempotency/"))
		if err != nil {
			log.Fatal(err)
		}
		defer locker.Close()
		locks, err := withfiber.New(locker, 10*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		app := fiber.New()
		app.Use(idempotency.New(idempotency.Config{Lock: locks, Storage: responses}))
		app.Post("/pay", pay(name, locks))

		request := httptest.NewRequest(http.MethodPost, "/pay", nil)
		request.Header.Set("X-Idempotency-Key", "6a2f41a3-c54c-fce8-32d2-0324e1c32e22")
		response, err := app.Test(request)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s answers: %s\n", name, body)
	}
	// Output:
	// first answers: first pays; it still has the lock: true, with a token: true
	// second answers: first pays; it still has the lock: true, with a token: true
}
