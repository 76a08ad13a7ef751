// Package simulate has only tests. They run random histories of the whole stack in fake time:
// Lockers of several processes on memhold, on a quorum of simulated nodes, and on redishold's
// protocol over a model of Redis (redismodel). mutants shows that they notice broken code.
// docs/simulation.md says what they check.
package simulate
