//go:build unix

package etcdfence_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/fence/etcdfence"
)

// The answer is as if the operations were alone in their transaction.
func TestAnswer(t *testing.T) {
	client := connect(t)
	empty(t, client)
	answer, err := patient(client).Do(t.Context(), "r", 5,
		clientv3.OpPut("v", "a"), clientv3.OpGet("v"))
	if err != nil {
		t.Fatal(err)
	}
	if !answer.Succeeded || len(answer.Responses) != 2 {
		t.Fatalf("Do = %v; want it succeeded, with 2 responses", answer)
	}
	kvs := answer.Responses[1].GetResponseRange().GetKvs()
	if len(kvs) != 1 || string(kvs[0].Value) != "a" {
		t.Errorf("the response to the Get is %v; want what was put", kvs)
	}
}

// Tokens under one prefix do not count under another.
func TestPrefix(t *testing.T) {
	client := connect(t)
	empty(t, client)
	guard := patient(client)
	guard.Prefix = "team/"
	if _, err := guard.Do(t.Context(), "r", 5); err != nil {
		t.Fatal(err)
	}
	if text, _ := get(t, client, "team/r"); text != digits(5) {
		t.Errorf("under the prefix there is %q; want the token", text)
	}
	if _, err := guard.Do(t.Context(), "r", 4); !isStale(err, 5) {
		t.Errorf("Do with an older token = %v; want a StaleError by 5", err)
	}
	if _, err := patient(client).Do(t.Context(), "r", 4); err != nil {
		t.Errorf("Do under the default prefix = %v", err)
	}
}

// A write ends after its timeout, and leaves no timer behind.
func TestTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:         5 * time.Second,
		time.Hour: time.Hour,
	} {
		var sent context.Context
		client := connect(t, intercepted(func(ctx context.Context, method string, request,
			answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
			options ...grpc.CallOption) error {
			sent = ctx
			return call(ctx, method, request, answer, conn, options...)
		}))
		before := time.Now()
		guard := etcdfence.Guard{Client: client, Timeout: timeout}
		if _, err := guard.Do(context.Background(), "timeout", 5); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		deadline, ok := sent.Deadline()
		if !ok || deadline.Before(before.Add(want)) || deadline.After(after.Add(want)) {
			t.Errorf("a Timeout of %v ends the write after %v; want %v", timeout,
				deadline.Sub(before), want)
		}
		if sent.Err() == nil {
			t.Error("the context of the write is not ended when Do has returned")
		}
	}
}
