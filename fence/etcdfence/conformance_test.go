//go:build unix

package etcdfence_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
)

// writer writes a value as the holder of token, and pauses as late as it can.
type writer func(ctx context.Context, client *clientv3.Client, resource string, token fence.Token,
	value string, pause func()) error

// guarded writes with the guard, as it is meant to be used.
func guarded(ctx context.Context, client *clientv3.Client, resource string, token fence.Token,
	value string, pause func()) error {
	if pause != nil {
		pause()
	}
	_, err := patient(client).Do(ctx, resource, token,
		clientv3.OpPut("value/"+resource, value))
	return err
}

func harness(write writer, change ...func(*clientv3.Config)) fencetest.Harness {
	return fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
		client := connect(t, change...)
		empty(t, client)
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				return write(ctx, client, resource, token, value, pause)
			},
			Read: func(ctx context.Context, resource string) (string, error) {
				answer, err := client.Get(ctx, "value/"+resource)
				if err != nil || len(answer.Kvs) == 0 {
					return "", err
				}
				return string(answer.Kvs[0].Value), nil
			},
			Crash: func(t testing.TB) { restart(t, client) },
		}
	}}
}

// restart kills the server, and starts it again on what it had on its disk.
func restart(t testing.TB, client *clientv3.Client) {
	t.Helper()
	server.Kill()
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	client.ActiveConnection().ResetConnectBackoff()
	get(t, client, "is the client connected again?")
}

func TestConformance(t *testing.T) {
	fencetest.Run(t, harness(guarded))
}

// edited changes the transactions of a client on their way, for a mutant of the guard.
func edited(t *testing.T, edit func(*pb.TxnRequest)) func(*clientv3.Config) {
	return intercepted(func(ctx context.Context, method string, request, answer any,
		conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if txn, ok := request.(*pb.TxnRequest); ok {
			before := txn.String()
			if edit(txn); txn.String() == before {
				t.Errorf("the mutant leaves the transaction as it was: %s", before)
			}
		}
		return call(ctx, method, request, answer, conn, options...)
	})
}

// compared changes the text that the stored token is compared with.
func compared(change func(string) string) func(*pb.TxnRequest) {
	return func(txn *pb.TxnRequest) {
		value := txn.Compare[0].TargetUnion.(*pb.Compare_Value)
		value.Value = []byte(change(string(value.Value)))
	}
}

func TestMutants(t *testing.T) {
	for name, m := range map[string]struct {
		edit func(*pb.TxnRequest)
		red  []string
	}{
		"smaller instead of smaller or equal": {compared(func(text string) string {
			n := 0
			fmt.Sscan(text, &n)
			return fmt.Sprintf("%016d", n-1)
		}), []string{"Order/AcceptsTheSameAgain"}},
		"takes any token": {compared(func(string) string { return "~" }),
			[]string{"Order/RefusesSmaller", "Concurrency/OlderThatBeganFirst",
				"Crash/RefusesAfterwards"}},
		"tokens without zeros in front": {func(txn *pb.TxnRequest) {
			compared(short)(txn)
			put := txn.Failure[1].GetRequestPut()
			put.Value = []byte(short(string(put.Value)))
		}, []string{"Order/ComparesNumbers"}},
		"does not remember": {func(txn *pb.TxnRequest) { txn.Failure[1] = txn.Success[0] },
			[]string{"Order/RefusesSmaller", "Crash/RefusesAfterwards"}},
		"remembers what it refuses": {func(txn *pb.TxnRequest) {
			txn.Success = append(txn.Success, txn.Failure[1])
		}, []string{"Order/RefusedIsNotRemembered"}},
		"writes what it refuses": {func(txn *pb.TxnRequest) {
			txn.Success = append(txn.Success, txn.Failure[0])
		}, []string{"Order/RefusesSmaller"}},
		"one token for all resources": {func(txn *pb.TxnRequest) {
			one := []byte(token("all"))
			txn.Compare[0].Key = one
			txn.Success[0].GetRequestRange().Key = one
			txn.Failure[1].GetRequestPut().Key = one
		}, []string{"Order/ResourcesAreApart"}},
	} {
		t.Run(name, func(t *testing.T) {
			fencetest.Catches(t, harness(guarded, edited(t, m.edit)), m.red...)
		})
	}
}

func short(text string) string { return strings.TrimLeft(text, "0") }

// TestMutantsInSteps has guards whose check and write are not one step.
func TestMutantsInSteps(t *testing.T) {
	check := func(ctx context.Context, client *clientv3.Client, resource string,
		token fence.Token) error {
		_, err := patient(client).Do(ctx, resource, token)
		return err
	}
	put := func(ctx context.Context, client *clientv3.Client, resource, value string) error {
		_, err := client.Put(ctx, "value/"+resource, value)
		return err
	}
	t.Run("check before the write", func(t *testing.T) {
		fencetest.Catches(t, harness(func(ctx context.Context, client *clientv3.Client,
			resource string, token fence.Token, value string, pause func()) error {
			if err := check(ctx, client, resource, token); err != nil {
				return err
			}
			if pause != nil {
				pause()
			}
			return put(ctx, client, resource, value)
		}), "Concurrency/OlderThatBeganFirst", "Concurrency/OlderThatBeganFirstOnANewResource")
	})
	t.Run("check after the write", func(t *testing.T) {
		fencetest.Catches(t, harness(func(ctx context.Context, client *clientv3.Client,
			resource string, token fence.Token, value string, pause func()) error {
			if err := put(ctx, client, resource, value); err != nil {
				return err
			}
			return check(ctx, client, resource, token)
		}), "Order/RefusesSmaller")
	})
}
