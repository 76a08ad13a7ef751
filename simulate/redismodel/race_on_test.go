//go:build race

package redismodel_test

// With the race detector, the number of histories is divided by raceDivisor. make test also runs
// all of them without it.
const raceDivisor = 8
