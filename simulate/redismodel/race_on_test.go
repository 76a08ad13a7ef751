//go:build race

package redismodel_test

// raceDivisor is by how much there are fewer histories with the race detector. make test runs all
// of them without it as well.
const raceDivisor = 4
