// Package redisclients has only tests: of package redisfence, on real servers, with the clients
// go-redis and rueidis. It is a module of its own, never released, because it needs these clients.
package redisclients
