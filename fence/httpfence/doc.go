// Package httpfence carries fencing tokens over HTTP, so that a service can refuse a caller whose
// lock was lost. Package fence says what a guard is.
//
// The caller sends its token with every request that writes:
//
//	client := &http.Client{Transport: httpfence.Transport{}}
//	ctx = httpfence.WithToken(ctx, lock.Token())
//	request, err := http.NewRequestWithContext(ctx, "PUT", "https://bank.example/accounts/7", body)
//	response, err := client.Do(request)
//	err = httpfence.Check(response) // a *fence.StaleError if a later holder came first
//
// The service refuses a token that is older than one it has seen. Any [fence.Guard] can be its
// store:
//
//	guard := sqlfence.Table{Dialect: sqlfence.Postgres}.Guard(db)
//	http.Handle("/accounts/", httpfence.Handler{Guard: guard, Next: accounts})
//
// # On the wire
//
// The token is the header field Fencing-Token: decimal digits, from 1 to 2^53, once. (It is no
// integer of RFC 9651, which end at 15 digits.) Refusals have the media type
// application/problem+json of RFC 9457:
//
//	412 Precondition Failed    a larger token was accepted; members resource, token and newest
//	428 Precondition Required  there is no token
//	400 Bad Request            the token, or the resource's name, is not allowed
//	404 Not Found              the guard knows no such resource
//	503 Service Unavailable    the guard could not be asked, and nothing was written
//	500 Internal Server Error  the guard does not know whether it has written
//
// Safe methods (GET, HEAD, OPTIONS, TRACE) need no token and pass.
//
// # Who is trusted
//
// A token is no proof of identity: a client that may write can send any token, and a very large one
// shuts all others out. So let only authenticated clients write. A gateway in between has to pass
// the header field on.
package httpfence
