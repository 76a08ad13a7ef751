//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// consulLease is the TTL of Consul's sessions, in place of the lease of the others: its servers
// refuse a shorter one.
const consulLease = 10 * time.Second

// campaignConsul is a candidate of the lock in Consul's client library, with the shortest
// lock-delay in place of 15 s. The lock-delay is how long after the end of a session nobody gets
// what it had.
func campaignConsul(ctx context.Context, address string, resign <-chan struct{}) error {
	config := consul.DefaultConfig()
	config.Address = address
	client, err := consul.NewClient(config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		lock, err := client.LockOpts(&consul.LockOptions{Key: key,
			SessionTTL: consulLease.String(), LockDelay: time.Millisecond})
		if err != nil {
			return err
		}
		lost, err := lock.Lock(ctx.Done())
		if err != nil || lost == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		term, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-resign:
				cancel()
			case <-lost:
				cancel()
			case <-term.Done():
			}
		}()
		act(term, func() bool {
			select {
			case <-lost:
				return false
			default:
				return true
			}
		})
		cancel()
		_ = lock.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// openConsul starts the program consul, which no package has: docs/benchmarks.md says how to build
// it.
func openConsul() (*place, error) {
	if _, err := exec.LookPath("consul"); err != nil {
		return nil, fmt.Errorf("consul: %w: build it, and have it in PATH", err)
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + ports[0]
	cmd := exec.Command("consul", "agent", "-dev", "-log-level=err", "-bind=127.0.0.1",
		"-http-port="+ports[0], "-server-port="+ports[1], "-serf-lan-port="+ports[2],
		"-serf-wan-port="+ports[3], "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1")
	cmd.Dir = "/"
	return startConsul(cmd, address)
}

// freePorts returns ports that differ and that nobody has.
func freePorts(n int) (ports []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // closed when all are known, so that no two are the same
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

func startConsul(cmd *exec.Cmd, address string) (*place, error) {
	if err := testserver.StartProcess(cmd); err != nil {
		return nil, err
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	client := &http.Client{Timeout: 10 * time.Second}
	leads := func() error { // an agent without a leader refuses sessions
		var leader string
		err := ask(client, "http://"+address+"/v1/status/leader", &leader)
		return testserver.Not(err == nil && leader != "", "leader %q: %v", leader, err)
	}
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if err = leads(); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	return &place{network: "tcp", server: address, close: end,
		requests: func(_ context.Context, span time.Duration) (float64, error) {
			return answered(client, address, span)
		}}, nil
}

func ask(client *http.Client, url string, answer any) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}

// answered returns how many requests the agent answers in a span, by its own metrics of whole
// intervals of ten seconds, from the first one that begins after the call.
func answered(client *http.Client, address string, span time.Duration) (float64, error) {
	const interval = 10 * time.Second
	n, spans := 0, 0
	last := ""
	for deadline := time.Now().Add(span + 3*interval); time.Now().Before(deadline); {
		var metrics struct {
			Timestamp string // when the last interval that is over began
			Samples   []struct {
				Name   string
				Count  int
				Labels map[string]string
			}
		}
		if err := ask(client, "http://"+address+"/v1/agent/metrics", &metrics); err != nil {
			return 0, err
		}
		if metrics.Timestamp != last {
			if spans > 1 { // two may have begun before the call
				for _, s := range metrics.Samples {
					if s.Name == "consul.api.http" && s.Labels["path"] != "v1_agent_metrics" {
						n += s.Count
					}
				}
			}
			spans++
		}
		last = metrics.Timestamp
		time.Sleep(time.Second)
	}
	if spans < 3 {
		return 0, fmt.Errorf("no metrics of %v are over after %v", interval, span+3*interval)
	}
	return float64(n) * span.Seconds() / (float64(spans-2) * interval.Seconds()), nil
}
