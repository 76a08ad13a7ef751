package redishold_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

const patience = 30 * time.Second

// testTTL is long against any pause of the machine. It is also the guard of a rule that waits for the server to have been up
// for that long.
const testTTL = 8 * time.Second

// capabilities are those of every deployment.
var capabilities = drivertest.Capabilities{
	Notify: true, Inspect: true, Guard: true, Identify: true,
	Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
	CanLose: true, CanKillHolder: true,
}

func TestConformanceStandalone(t *testing.T) {
	server := redistest.Start(t)
	all := capabilities
	all.CanFreeze, all.CanCutReply, all.CanForget = true, true, true
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			server.Do(t, "FLUSHALL")
			proxies := make(map[driver.Backend]*redistest.Proxy)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					proxy := redistest.NewProxy(t, server)
					b := open(t, proxy.URL())
					proxies[b] = proxy
					return b
				},
				Lose: func(t testing.TB, key string) { server.Do(t, "DEL", key) },
				CutReply: func(_ testing.TB, client driver.Backend) {
					proxies[client].SetReplies(redistest.CutOnce)
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				Forget: func(t testing.TB) {
					server.Kill()
					server.Run(t)
				},
				KillHolder: func(t testing.TB, key string) { killHolder(t, server.URL(), key) },
			}
		},
		Capabilities: all,
		TTL:          testTTL,
	})
}

func open(t testing.TB, url string, options ...redishold.Option) *redishold.Backend {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := redishold.Open(ctx, url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// killHolder has a process of its own hold the key, and kills it.
func killHolder(t testing.TB, url, key string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join([]string{url, key, drivertest.DefaultShortTTL.String()}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if line != "held\n" {
		t.Fatalf("the holder said %q", line)
	}
}
