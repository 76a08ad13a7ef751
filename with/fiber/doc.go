// Package withfiber is a lock of Holdfast for the idempotency middleware of fiber v3. With it,
// requests with the same idempotency key wait for each other in a whole fleet. The middleware of v2
// has the same interface, and is not tested.
//
//	locks, err := withfiber.New(locker, 10*time.Second)
//	app.Use(idempotency.New(idempotency.Config{Lock: locks, Storage: storage}))
//	app.Post("/pay", func(c fiber.Ctx) error {
//		lock := locks.Held(c.Get("X-Idempotency-Key"))
//		if lock == nil { // the request has no key, so it waits for no other
//			return fiber.NewError(fiber.StatusBadRequest, "X-Idempotency-Key is missing")
//		}
//		return pay(lock.Context(c.Context()), lock.Token()) // the context ends with the lock
//	})
//
// The Storage has to be one that all processes share, such as those of gofiber/storage in Redis or
// PostgreSQL. The default is the memory of one process: other processes would not see the response,
// and would call the handler again.
//
// Clients choose the keys, so give the holdfast.Locker a prefix that nothing else uses
// (holdfast.WithPrefix).
//
// # Waiting
//
// fiber's own lock waits for ever, even when the client is gone, and has no context. A [Locker]
// waits for as long as [New] was told. A request that waits for so long fails with fiber's "failed
// to lock", which wraps the [*holdfast.HeldError]. A fiber.ErrorHandler may answer it with 409. The
// request also fails if the backend does not answer, up to 5 s after the wait. Its handler is not
// called then.
//
// # A lock that is lost while the handler runs
//
// Then another request may have the lock and find no response, so its handler runs at the same
// time. The middleware does not know of a loss, and stores both responses, one after the other. So:
//
//   - A handler has the lock by [Locker.Held], and with it a context that ends at the loss, before
//     anybody else can have the lock, and the token for the stores that it writes to (package
//     fence). If it returns an error then, the middleware stores nothing.
//   - Any other handler runs on.
//   - The function of [WithOnError] is told at once, in both cases. The middleware's Unlock fails
//     with the loss, which fiber logs.
package withfiber
