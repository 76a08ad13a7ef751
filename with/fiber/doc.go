// Package withfiber has requests with one idempotency key wait for each other in a whole fleet: a
// lock of Holdfast for the idempotency middleware of fiber v3. That of v2 has the same
// interface, and is not tested.
//
//	locks, err := withfiber.New(locker, 10*time.Second)
//	app.Use(idempotency.New(idempotency.Config{Lock: locks, Storage: storage}))
//	app.Post("/pay", func(c fiber.Ctx) error {
//		lock := locks.Held(c.Get("X-Idempotency-Key"))
//		return pay(lock.Context(c.Context()), lock.Token()) // the context ends with the lock
//	})
//
// The Storage has to be one that all processes share, as those of gofiber/storage in Redis or
// PostgreSQL. The default is the memory of one process: the others would not see the response, and
// call the handler again.
//
// Clients choose the keys, so give the holdfast.Locker a prefix that nothing else uses
// (holdfast.WithPrefix).
//
// # Waiting
//
// fiber's own lock waits for ever, also when the client is gone, and has no context. A [Locker]
// waits for as long as [New] is told. A request that waits in vain fails with fiber's "failed to
// lock", which wraps the [*holdfast.HeldError]: a fiber.ErrorHandler may answer 409 to it. The
// request also fails if the backend does not answer, up to 5 s after the wait. Its handler is not
// called then.
//
// # A lock that is lost while the handler runs
//
// Another request may have the lock then, finds no response, and its handler runs at the same time.
// The middleware does not know of a loss, and stores both responses, one after the other. So:
//
//   - A handler has the lock by [Locker.Held], and with it a context that ends at the loss, before
//     anybody else can have the lock, and the token for the stores that it writes to (package
//     fence). Where it returns an error then, the middleware stores nothing.
//   - Any other handler runs on.
//   - The function of [WithOnError] is told at once, in both cases. The middleware's Unlock fails
//     with the loss, which fiber logs.
package withfiber
