package sqltest_test

import (
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// benchmarkEtcd has one member, which syncs each transaction to disk.
func benchmarkEtcd(b *testing.B) {
	const store, beside = "etcd", "transaction with a put"
	ctx := b.Context()
	server, err := etcdtest.Start()
	if err != nil {
		b.Fatal(err)
	}
	started = append(started, server)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()},
		Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	// at is a side that puts to a key.
	at := func(key string, write func(put clientv3.Op) error) side {
		return side{func(i int) error {
			return write(clientv3.OpPut(key, strconv.Itoa(i)))
		}, func() (int, error) {
			answer, err := client.Get(ctx, key)
			if err != nil || len(answer.Kvs) == 0 {
				return 0, err
			}
			return strconv.Atoi(string(answer.Kvs[0].Value))
		}}
	}
	bare := at("bare", func(put clientv3.Op) error {
		_, err := client.Txn(ctx).Then(put).Commit()
		return err
	})
	guard := etcdfence.Guard{Client: client}
	compare(b, store, "`Guard`", beside, bare, at("guarded", func(put clientv3.Op) error {
		_, err := guard.Do(ctx, "r", nextToken(), put)
		return err
	}))
	lock, err := client.Put(ctx, "lock", "")
	if err != nil {
		b.Fatal(err)
	}
	held := etcdfence.Held("lock", lock.Header.Revision)
	compare(b, store, "`Held`", beside, bare, at("conditional", func(put clientv3.Op) error {
		answer, err := client.Txn(ctx).If(held).Then(put).Commit()
		if err == nil && !answer.Succeeded {
			err = fence.ErrStale
		}
		return err
	}))
}
