package stores

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// etcdStore has a counter in a key of etcd, and the token in another one.
type etcdStore struct {
	client *clientv3.Client
	guard  etcdfence.Guard
}

func openEtcd(at job.Stores) (Store, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at.Etcd}, Logger: zap.NewNop()})
	return etcdStore{client, etcdfence.Guard{Client: client, Timeout: bound}}, err
}

func (s etcdStore) twin(key string) string { return "twin/" + key }

func (s etcdStore) Create(ctx context.Context, keys []string) error {
	for _, key := range keys {
		for _, name := range []string{key, s.twin(key)} {
			if err := s.put(ctx, name, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s etcdStore) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	answer, err := s.guard.Do(ctx, key, token, clientv3.OpGet(key))
	if err != nil {
		return 0, err
	}
	return only((*clientv3.GetResponse)(answer.Responses[0].GetResponseRange()))
}

func (s etcdStore) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	_, err := s.guard.Do(ctx, key, token, clientv3.OpPut(key, text(value)))
	return err
}

func (s etcdStore) Get(ctx context.Context, key string) (uint64, error) {
	answer, err := s.client.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	return only(answer)
}

func (s etcdStore) Twin(ctx context.Context, key string) (uint64, error) {
	return s.Get(ctx, s.twin(key))
}

func (s etcdStore) SetTwin(ctx context.Context, key string, value uint64) error {
	return s.put(ctx, s.twin(key), value)
}

func (s etcdStore) put(ctx context.Context, name string, value uint64) error {
	_, err := s.client.Put(ctx, name, text(value))
	return err
}

func (s etcdStore) Close() error { return s.client.Close() }

// only returns the number in an answer, which has at most one.
func only(answer *clientv3.GetResponse) (uint64, error) {
	if len(answer.Kvs) != 1 {
		return 0, fmt.Errorf("%d values", len(answer.Kvs))
	}
	return strconv.ParseUint(string(answer.Kvs[0].Value), 10, 64)
}
