package redishold_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/redishold"
)

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(ctx context.Context, url string) (driver.Backend, error) {
		return redishold.Open(ctx, url)
	})
	if order := os.Getenv(contenderEnv); order != "" {
		if err := contend(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Tests mostly wait for servers, so more of them may run than there are processors.
	flag.Parse()
	flag.Set("test.parallel", "12")
	os.Exit(m.Run())
}
