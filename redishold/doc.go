// Package redishold keeps locks in Redis or Valkey: a lone server, a primary behind Sentinels, or a Cluster.
//
//	backend, err := redishold.Open(ctx, "redis://localhost:6379")
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// A lock is a plain string key with a TTL, as every Redlock client writes it, so other libraries exclude Holdfast and
// are excluded by it. What is stored besides is described in package protocol.
package redishold
