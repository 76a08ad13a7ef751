// Package simulate runs random histories of the whole stack in fake time: Lockers of several
// processes on memhold, on a quorum of simulated nodes, and on redishold's protocol over a model of
// Redis.
package simulate
