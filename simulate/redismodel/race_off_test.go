//go:build !race

package redismodel_test

const raceDivisor = 1
