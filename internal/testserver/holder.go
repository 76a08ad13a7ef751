//go:build unix

package testserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// holderVariable makes a test program a process that holds a key: address, key and TTL, separated
// by newlines.
const holderVariable = "TESTSERVER_HOLDER"

// PlayHolder is what TestMain calls first. In a process that [KillHolder] has started it acquires
// the key on the backend that open opens at the address, and does not return. In any other process
// it does nothing.
func PlayHolder(open func(ctx context.Context, address string) (driver.Backend, error)) {
	order := os.Getenv(holderVariable)
	if order == "" {
		return
	}
	fmt.Println(holdForEver(strings.Split(order, "\n"), open))
	os.Exit(1)
}

// holdForEver acquires, says "held" and waits to be killed. It returns only if it fails.
func holdForEver(order []string, open func(ctx context.Context, address string) (driver.Backend,
	error)) error {
	ttl, err := time.ParseDuration(order[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	b, err := open(ctx, order[0])
	if err != nil {
		return err
	}
	claim := driver.Claim{Key: order[1], Owner: driver.NewOwner(driver.OwnerSuffix("doomed")),
		TTL: ttl}
	for {
		r, err := b.Acquire(ctx, claim)
		if err == nil && r.State == driver.Held {
			fmt.Println("held")
			select {}
		}
		if ctx.Err() != nil || driver.Permanent(err) {
			return fmt.Errorf("acquisition is %v: %w", r.State, err)
		}
		time.Sleep(time.Millisecond) // a busy machine may take all of a short lease
	}
}

// KillHolder starts this test program once more, as a process that holds the key for
// drivertest.DefaultShortTTL, or for the given TTL. It kills the process while it holds the key.
// See [PlayHolder].
func KillHolder(t testing.TB, address, key string, ttl ...time.Duration) {
	t.Helper()
	ttl = append(ttl, drivertest.DefaultShortTTL)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(),
		holderVariable+"="+strings.Join([]string{address, key, ttl[0].String()},
			"\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = StartProcess(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if line != "held\n" {
		t.Fatalf("the holder said %q", line)
	}
}
