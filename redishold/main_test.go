package redishold_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold"
)

// holderEnv makes the test binary a process that holds a key: URL, key and TTL, separated by newlines.
const holderEnv = "REDISHOLD_TEST_HOLDER"

func TestMain(m *testing.M) {
	if order := os.Getenv(holderEnv); order != "" {
		if err := holdForEver(order); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
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

// holdForEver acquires, says "held" and waits to be killed.
func holdForEver(order string) error {
	part := strings.Split(order, "\n")
	ttl, err := time.ParseDuration(part[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := redishold.Open(ctx, part[0])
	if err != nil {
		return err
	}
	claim := driver.Claim{Key: part[1], Owner: driver.NewOwner(driver.OwnerSuffix("doomed")), TTL: ttl}
	if r, err := b.Acquire(ctx, claim); err != nil || r.State != driver.Held {
		return fmt.Errorf("Acquire = %v, %w", r.State, err)
	}
	fmt.Println("held")
	select {}
}
