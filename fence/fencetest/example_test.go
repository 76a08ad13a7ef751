package fencetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
)

var t *testing.T // of TestConformance(t *testing.T)

// The guard is a Register and the store a map. A guard of a server leaves Bubble out.
func ExampleRun() {
	fencetest.Run(t, fencetest.Harness{
		NewStore: func(testing.TB) fencetest.Store {
			var guard fence.Register
			var values sync.Map
			return fencetest.Store{
				Write: func(ctx context.Context, resource string, token fence.Token, value string,
					pause func()) error {
					return guard.Do(ctx, resource, token, func(ctx context.Context) error {
						if pause != nil {
							pause() // as late as it can be
						}
						if ctx.Err() == nil {
							values.Store(resource, value)
						}
						return ctx.Err()
					})
				},
				Read: func(_ context.Context, resource string) (string, error) {
					value, _ := values.Load(resource)
					text, _ := value.(string)
					return text, nil
				},
			}
		},
		Bubble: true,
	})
}
